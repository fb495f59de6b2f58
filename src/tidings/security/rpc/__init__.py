"""Requests to key management centres and topic discovery nodes, sent as events."""
