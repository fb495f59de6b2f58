"""Measure sealing an event, admitting it at a broker, and opening it, alone and in batches with one signature."""

import time
from collections.abc import Callable
from statistics import fmean

from benchmarks.workloads.secure_workload import SecureTopic, event
from tidings.cli.measurement import Measurement, median, steps, time_each
from tidings.model.event import Event
from tidings.security import Gate, Suite

BATCH = 64
SIZES = [1, 1_024, 16_384, 65_536]
_LET_IN = "let in at a broker that does not check signatures"
SUITES = [Suite.AES_128_GCM, Suite.AES_192_GCM, Suite.AES_256_GCM, Suite.CHACHA20_POLY1305]


def measure(sizes: list[int], rounds: int) -> list[Measurement]:
    """Measure each cipher suite and payload size with `rounds` events."""
    measurements = []
    with steps(len(SUITES) * len(sizes)) as step:
        for suite in SUITES:
            topic = SecureTopic(suite)
            for size in sizes:
                step(f"{suite.text}, {size:,} bytes")
                measurements += _measure_suite(topic, f"{suite.text}, {size:,} bytes", size, rounds)
    return measurements


def _measure_suite(topic: SecureTopic, what: str, size: int, rounds: int) -> list[Measurement]:
    now = time.time_ns() // 1_000
    seal, seal_all = topic.publisher.seal, topic.publisher.seal_all
    plain = [event(number, size, now + number) for number in range(rounds)]
    batches = [
        [event(first + number, size, now + number) for number in range(BATCH)] for first in range(0, rounds, BATCH)
    ]
    single: list[Event] = []
    batched: list[Event] = []
    costs = {
        "seal": median(time_each(lambda event_: single.append(seal(event_, event_.timestamp)), plain)),
        f"seal, in batches of {BATCH}": median(
            time_each(lambda some: batched.extend(seal_all(some, some[0].timestamp)), batches)
        )
        / BATCH,
        _LET_IN: median(time_each(_admit_with(topic.gate(verifies=False), now), single)),
    }
    for name, events in (("", single), (f", in batches of {BATCH}", batched)):
        # The mean, not the median, since the first event of a batch pays for the signature of all.
        costs[f"check at a broker{name}"] = fmean(time_each(_admit_with(topic.gate(), now), events))
        costs[f"check and open{name}"] = fmean(time_each(lambda event_: topic.subscriber.open(event_, now), events))
    goals = {_LET_IN: "15 us"}
    return [Measurement(f"{what}: {name}", cost * 1e6, "us", goals.get(name, "")) for name, cost in costs.items()]


def _admit_with(gate: Gate, now: int) -> Callable[[Event], None]:
    return lambda event_: gate.admit(event_, now)
