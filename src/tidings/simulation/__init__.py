"""Simulation of overlays of brokers in one process and in virtual time.

It runs the same engines as real brokers, and every run can be replayed from its seed.
"""

from tidings.simulation.topologies import Topology as Topology
from tidings.simulation.world import World as World

__all__ = ["Topology", "World"]
