"""Overlays of brokers in one process, in virtual time: the same engines, every run replayable from its seed."""

from tidings.simulation.topologies import Topology as Topology
from tidings.simulation.world import World as World

__all__ = ["Topology", "World"]
