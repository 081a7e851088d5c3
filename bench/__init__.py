"""Measuring mirab: quality against its targets, speed, neighbours, and adversaries. See docs/benchmarks.md."""
