"""Tidings on Spark. Nothing here imports PySpark before it is used, so that all the rest works without it."""

# Not on first use, as elsewhere: a submodule of the same name would take the function's place.
from tidings.spark.explain import explain, explain_journal
from tidings.spark.pipeline import Pipeline
from tidings.spark.retrace import Retraced, retrace
from tidings.spark.route import Routed, route
from tidings.spark.session import register, session
from tidings.spark.trial import Trial, per_rule, try_policy

__all__ = [
    "Pipeline",
    "Retraced",
    "Routed",
    "Trial",
    "explain",
    "explain_journal",
    "per_rule",
    "register",
    "retrace",
    "route",
    "session",
    "try_policy",
]
