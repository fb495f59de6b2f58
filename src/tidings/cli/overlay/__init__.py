"""A local overlay: real broker processes on this machine, and what can be asked of running brokers."""

from tidings.cli.overlay.local import LocalOverlay as LocalOverlay
