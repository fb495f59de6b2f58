"""`Pipeline`: routing as a stream, with subscriptions, contexts and policies that change while it runs."""

from tidings.spark.pipeline.outcome import Outcome
from tidings.spark.pipeline.pipeline import Pipeline
from tidings.spark.pipeline.sinks import Console, Folder, Function, HubFolder, IntoBroker, IntoHub, Sink

__all__ = ["Console", "Folder", "Function", "HubFolder", "IntoBroker", "IntoHub", "Outcome", "Pipeline", "Sink"]
