"""Turns one configuration into one outcome."""
