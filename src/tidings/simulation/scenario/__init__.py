"""Scenarios: a simulation described by a TOML file."""

from tidings.simulation.scenario.outcome import Outcome as Outcome
from tidings.simulation.scenario.run import Run as Run
from tidings.simulation.scenario.scenario import Scenario as Scenario
from tidings.simulation.scenario.scenario import read as read

__all__ = ["Outcome", "Run", "Scenario", "read"]
