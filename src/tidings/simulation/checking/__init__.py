"""Histories of a simulated world: drawn from a seed, run, and checked against the guarantees of routing."""
