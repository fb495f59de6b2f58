"""Connections of a broker: listener, TLS, frames, handshake, and lockout after refused attempts."""
