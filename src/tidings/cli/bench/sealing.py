"""Sealing an event, letting it in at a broker, opening it: what it takes, alone and in batches with one signature."""

import time
from collections.abc import Callable
from statistics import fmean

from tidings.cli.bench import Measurement, each_timed, median, steps
from tidings.cli.bench.secure_workload import SecureTopic, event
from tidings.model.event import Event
from tidings.security import Gate, Suite

BATCH = 64
SIZES = [1, 1_024, 16_384, 65_536]
_LET_IN = "let in at a broker that does not check signatures"
SUITES = [Suite.AES_128_GCM, Suite.AES_192_GCM, Suite.AES_256_GCM, Suite.CHACHA20_POLY1305]


def measure(sizes: list[int], rounds: int) -> list[Measurement]:
    """Each by so many events."""
    found = []
    with steps(len(SUITES) * len(sizes)) as step:
        for suite in SUITES:
            topic = SecureTopic(suite)
            for size in sizes:
                step(f"{suite.text}, {size:,} bytes")
                found += _measured(topic, f"{suite.text}, {size:,} bytes", size, rounds)
    return found


def _measured(topic: SecureTopic, what: str, size: int, rounds: int) -> list[Measurement]:
    now = time.time_ns() // 1_000
    seal, seal_all = topic.publisher.seal, topic.publisher.seal_all
    plain = [event(number, size, now + number) for number in range(rounds)]
    batches = [
        [event(first + number, size, now + number) for number in range(BATCH)] for first in range(0, rounds, BATCH)
    ]
    alone: list[Event] = []
    together: list[Event] = []
    costs = {
        "seal": median(each_timed(lambda one: alone.append(seal(one, one.timestamp)), plain)),
        f"seal, in batches of {BATCH}": median(
            each_timed(lambda some: together.extend(seal_all(some, some[0].timestamp)), batches)
        )
        / BATCH,
        _LET_IN: median(each_timed(_admitting(topic.gate(verifies=False), now), alone)),
    }
    for name, events in (("", alone), (f", in batches of {BATCH}", together)):
        # The mean: of a batch, one event pays for the signature of all.
        costs[f"check at a broker{name}"] = fmean(each_timed(_admitting(topic.gate(), now), events))
        costs[f"check and open{name}"] = fmean(each_timed(lambda one: topic.subscriber.open(one, now), events))
    goals = {_LET_IN: "15 us"}
    return [Measurement(f"{what}: {name}", cost * 1e6, "us", goals.get(name, "")) for name, cost in costs.items()]


def _admitting(gate: Gate, now: int) -> Callable[[Event], None]:
    return lambda one: gate.admit(one, now)
