"""`tidings demo`: the story so far, played on this machine. Every line that it prints has just been computed."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidings.cli.demo import filters, on_overlay, on_sealed, on_spark, stories
from tidings.cli.demo.scene import Scene
from tidings.cli.terminal import out, print_json, progress
from tidings.spark.session import is_running


def play(*, spark: bool, as_json: bool) -> None:
    """Plays all scenes, or those that need no Spark, and prints each as soon as it has been computed."""
    with tempfile.TemporaryDirectory() as folder:
        show(scenes(Path(folder), spark=spark), as_json=as_json)


def scenes(folder: Path, *, spark: bool) -> list[Callable[[], Scene]]:
    """The scenes in their order. Those on Spark share a session, and the last of them ends it."""
    story = on_overlay.Story(folder)

    def sealed_topic() -> Scene:
        return on_sealed.sealed_topic(folder / "sealed")

    chosen: list[Callable[[], Scene]] = [
        *(filters.languages, filters.mistakes, filters.covering),
        *(stories.fire, stories.cars_and_cameras, stories.traffic_loops, stories.supply_chain, stories.security_zones),
        *(story.brokers_and_a_hub, sealed_topic),
    ]
    return [*chosen, on_spark.spark_agrees, on_spark.spark_streams, story.brokers_and_spark] if spark else chosen


def needs_spark(scene: Callable[[], Scene]) -> bool:
    """Whether a scene is played on Spark, or makes what such a scene reads."""
    return scene.__name__ in ("brokers_and_a_hub", "brokers_and_spark", "spark_agrees", "spark_streams")


def show(chosen: list[Callable[[], Scene]], *, as_json: bool) -> None:
    """Plays the scenes and prints them. Stops Spark afterwards if a scene has started it."""
    begin, borrowed = time.perf_counter(), is_running()
    facts: dict[str, Any] = {}
    try:
        for scene in _watched(chosen):
            facts |= scene.facts
            if not as_json:
                out.print(f"\n[bold]{scene.title}[/bold]")
                for line in scene.lines:
                    out.print(f"  {line}", soft_wrap=True)
    finally:
        if is_running() and not borrowed:
            on_spark.local_session().stop()
    seconds = time.perf_counter() - begin
    if as_json:
        print_json({**facts, "seconds": round(seconds, 1)})
    else:
        out.print(f"\n{len(chosen)} scenes in {seconds:.1f} s. Where to go on: docs/tutorial.md and docs/tutorial\n")


def _watched(scenes: list[Callable[[], Scene]]) -> Iterator[Scene]:
    with progress() as bar:
        task = bar.add_task("playing", total=len(scenes))
        for scene in scenes:
            bar.update(task, description=scene.__name__.replace("_", " "))
            yield scene()
            bar.advance(task)
