"""Benchmarks of simulated overlays: the figures of the papers, and the simulator itself."""
