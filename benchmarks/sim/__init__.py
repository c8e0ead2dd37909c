"""A simulator of jobs whose truth is known: noise, loader, slices. Shares no code with the queue model it judges."""
