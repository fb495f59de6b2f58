"""The command `tidings demo`: a series of scenes, each run on this machine. Every printed result was just computed."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidings.cli.demo import on_overlay, on_sealed, on_spark, stories
from tidings.cli.demo.stories import Scene
from tidings.cli.output import out, print_json, progress
from tidings.spark.session import is_running


def play(*, spark: bool, as_json: bool) -> None:
    """Run all scenes, and print each as soon as it is done. If `spark` is False, leave out the scenes on Spark."""
    with tempfile.TemporaryDirectory() as folder:
        show(scenes(Path(folder), spark=spark), as_json=as_json)


def scenes(folder: Path, *, spark: bool) -> list[Callable[[], Scene]]:
    """Return the scenes in order. Scenes on Spark come last and share a session; `show` stops it."""
    story = on_overlay.Story(folder)

    def sealed_topic() -> Scene:
        return on_sealed.sealed_topic(folder / "sealed")

    chosen: list[Callable[[], Scene]] = [
        *(stories.languages, stories.mistakes, stories.covering),
        *(stories.fire, stories.cars_and_cameras, stories.traffic_loops, stories.supply_chain, stories.security_zones),
        *(story.brokers_and_a_hub, sealed_topic),
    ]
    return [*chosen, on_spark.spark_agrees, on_spark.spark_streams, story.brokers_and_spark] if spark else chosen


def needs_spark(scene: Callable[[], Scene]) -> bool:
    """Return whether a scene runs on Spark, or writes a journal that such a scene reads."""
    return scene.__name__ in ("brokers_and_a_hub", "brokers_and_spark", "spark_agrees", "spark_streams")


def show(chosen: list[Callable[[], Scene]], *, as_json: bool) -> None:
    """Run the scenes and print their results. Stop Spark at the end if a scene has started it."""
    begin, was_running = time.perf_counter(), is_running()
    facts: dict[str, Any] = {}
    try:
        for scene in _run_scenes(chosen):
            facts |= scene.facts
            if not as_json:
                out.print(f"\n[bold]{scene.title}[/bold]")
                for line in scene.lines:
                    out.print(f"  {line}", soft_wrap=True)
    finally:
        if is_running() and not was_running:
            on_spark.local_session().stop()
    seconds = time.perf_counter() - begin
    if as_json:
        print_json({**facts, "seconds": round(seconds, 1)})
    else:
        out.print(f"\n{len(chosen)} scenes in {seconds:.1f} s. Where to go on: docs/tutorial.md and docs/tutorial\n")


def _run_scenes(scenes: list[Callable[[], Scene]]) -> Iterator[Scene]:
    """Run the scenes one after the other with a progress bar, and yield their results."""
    with progress() as bar:
        task = bar.add_task("playing", total=len(scenes))
        for scene in scenes:
            bar.update(task, description=scene.__name__.replace("_", " "))
            yield scene()
            bar.advance(task)
