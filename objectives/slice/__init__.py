"""Real training, bounded, in a child process; the only place that imports torch, transformers and peft."""
