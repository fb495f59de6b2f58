"""Benchmarks of the engine and the hub."""
