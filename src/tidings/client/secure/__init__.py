"""Secure topics for a client: tokens, keys, sealing and decryption, discovery."""
