"""Scenarios: a simulation described by a TOML file."""

from tidings.simulation.scenario.outcome import ScenarioOutcome as ScenarioOutcome
from tidings.simulation.scenario.run import Run as Run
from tidings.simulation.scenario.scenario import Scenario as Scenario
from tidings.simulation.scenario.scenario import read as read

__all__ = ["Run", "Scenario", "ScenarioOutcome", "read"]
