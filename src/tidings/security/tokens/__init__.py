"""Tokens and credentials: what an entity may do on a secure topic, and the verified topics, tokens and notices."""
