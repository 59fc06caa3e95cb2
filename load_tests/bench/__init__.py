"""Benchmarks of single parts: `make bench-*`."""
