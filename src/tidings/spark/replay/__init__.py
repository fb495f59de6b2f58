"""Replay journals on Spark: recompute notifications, explain decisions, and try policies on past events."""
