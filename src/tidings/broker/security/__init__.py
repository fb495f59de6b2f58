"""Security of a broker: secure topics, trust groups, and proofs of certificate keys."""
