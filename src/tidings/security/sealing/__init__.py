"""Sealing of events: envelopes, epoch keys, Merkle trees, signatures and replay protection."""
