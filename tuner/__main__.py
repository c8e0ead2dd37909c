"""Lets `python -m tuner` stand for `tuner`."""

from tuner.cli.main import entry

entry()
