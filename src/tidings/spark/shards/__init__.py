"""Shards: engines with a part of the subscriptions, built, stored, and run on executors over events and changes."""
