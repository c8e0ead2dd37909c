"""Benchmarks: timed or long-running checks that are no tests. Nothing in the product imports them."""
