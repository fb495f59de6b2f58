"""Real broker processes under load, killed, stopped, cut off and restarted: what was acknowledged is neither lost, nor
told twice, nor out of order.

A round can be played again by its seed, as far as processes do the same again: `TIDINGS_ROUND=17 pytest -m slow
tests/process/test_faults.py -k drawn`.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.rounds import Round
from tests.sizes import sized, variants
from tidings.simulation.topologies import Topology, line, ring, star

_SHAPES: tuple[Callable[[int], Topology], ...] = (line, ring, star)
_ROUNDS = sized(3, 100)
_DRAWN = [int(os.environ["TIDINGS_ROUND"])] if "TIDINGS_ROUND" in os.environ else range(1, _ROUNDS + 1)


def _played(seed: int, folder: Path, faults: int) -> Round:
    played = Round(seed, _SHAPES[seed % 3](4), folder, faults)
    complaint = asyncio.run(played.play())
    if complaint:
        pytest.fail(complaint, pytrace=False)
    return played


@pytest.mark.process
@pytest.mark.parametrize("seed", variants(1, [19, 18, 11]))  # on a ring, a line and a star
def test_nothing_acknowledged_is_lost_whatever_happens_to_brokers_and_links(seed: int, tmp_path: Path) -> None:
    assert _played(seed, tmp_path, 3).accepted > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", _DRAWN)
def test_the_same_in_rounds_that_are_drawn(seed: int, tmp_path: Path) -> None:
    assert _played(100 + seed, tmp_path, 5).accepted > 100
