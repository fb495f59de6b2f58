"""Secure topics in the engine: sealed events, which subscriptions need a token, and gossip between brokers."""
