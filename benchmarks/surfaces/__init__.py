"""Simulated jobs whose best configuration is known, to compare search methods on; no estimator imports them."""
