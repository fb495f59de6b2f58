"""Benchmarks of sealed events, key management and trust groups."""
