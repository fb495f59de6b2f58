"""Tidings on Spark. Nothing here imports PySpark before it is used, so that all the rest works without it."""

# Not on first use, as elsewhere: a submodule of the same name would take the function's place.
from tidings.spark.pipeline import Pipeline
from tidings.spark.route import Routed, route
from tidings.spark.session import register, session

__all__ = ["Pipeline", "Routed", "register", "route", "session"]
