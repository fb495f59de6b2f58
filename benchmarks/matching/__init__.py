"""Benchmarks of the matching index and the filter languages."""
