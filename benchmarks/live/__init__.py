"""Benchmarks of Tidings brokers as processes."""
