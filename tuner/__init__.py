"""Decides what to try and what to say. Never imports torch."""
