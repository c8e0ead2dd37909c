"""Keeps what was measured: Optuna's tables and ours in one database."""
