"""An event that was admitted and could not be written down may come again; nothing that came before it may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.world import NOW, World
from tests.sizes import examples
from tidings.model.errors import SecurityError

WORLD = World()


@examples(20, 200)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.data())
def test_what_was_taken_back_may_come_again_and_nothing_before_it(steps: list[int], data: st.DataObject) -> None:
    sealer, gate = WORLD.sealer(), WORLD.gate()
    events, when = [], NOW
    for number, step in enumerate(steps, 1):
        when += step  # also several at the same time: then their numbers tell them apart
        events.append(sealer.seal(WORLD.event(number), when, number))
        gate.admit(events[-1], NOW)
    kept = data.draw(st.integers(0, len(events)))
    for event in reversed(events[kept:]):
        gate.take_back(event)
    for event in events[:kept]:
        with pytest.raises(SecurityError, match="came before"):
            gate.admit(event, NOW)
    for event in events[kept:]:
        gate.admit(event, NOW)
