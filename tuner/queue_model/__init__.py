"""The queue model: turns service times and compute into step times of every configuration, measured or not."""
