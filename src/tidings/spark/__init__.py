"""Tidings on Spark: route DataFrames of events, run streaming pipelines, and replay journals.

Importing this package does not import PySpark; its functions import PySpark when they are called.
"""

# Imported eagerly, unlike in other packages: on first use, the submodule `route` would replace the function `route`.
from tidings.spark.pipeline import Pipeline
from tidings.spark.replay.explain import explain, explain_journal
from tidings.spark.replay.policy_trial import PolicyTrial, per_rule, try_policy
from tidings.spark.replay.retrace import RetraceResult, retrace
from tidings.spark.route import RouteResult, route
from tidings.spark.session import register, session

__all__ = [
    "Pipeline",
    "PolicyTrial",
    "RetraceResult",
    "RouteResult",
    "explain",
    "explain_journal",
    "per_rule",
    "register",
    "retrace",
    "route",
    "session",
    "try_policy",
]
