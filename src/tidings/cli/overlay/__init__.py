"""A local overlay of real broker processes on this machine, and queries to running brokers."""

from tidings.cli.overlay.local import LocalOverlay as LocalOverlay
