"""The engine: the routing and matching core as a pure state machine. Operations go in, effects come out.

The engine does no I/O, reads no clock and draws no random numbers; a driver (hub, broker, simulator, Spark) does that.
"""

from tidings.engine.engine import Engine as Engine
from tidings.engine.settings import Settings as Settings

__all__ = ["Engine", "Settings"]
