"""The pure core: operations go in, effects come out, nothing else happens."""

from tidings.engine.engine import Engine as Engine
from tidings.engine.settings import Settings as Settings

__all__ = ["Engine", "Settings"]
