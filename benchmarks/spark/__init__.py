"""Benchmarks of routing on Spark."""
