"""Streaming pipelines: `Pipeline` and its sinks, with subscriptions, contexts and policies that change at run time."""

from tidings.spark.pipeline.pipeline import Pipeline
from tidings.spark.pipeline.sinks import (
    Console,
    Folder,
    Function,
    HubFolder,
    IntoBroker,
    IntoHub,
    MicroBatchResult,
    Sink,
)

__all__ = [
    "Console",
    "Folder",
    "Function",
    "HubFolder",
    "IntoBroker",
    "IntoHub",
    "MicroBatchResult",
    "Pipeline",
    "Sink",
]
