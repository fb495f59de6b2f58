"""One broker with one number of subscriptions: started, measured, and gone."""

import socket
import subprocess
import sys
from typing import TypeVar

import msgspec

from tidings.cli.bench.brokers.children import Children
from tidings.cli.bench.brokers.load import Carried, Load
from tidings.cli.bench.brokers.programs import Job, Latency, Placed
from tidings.cli.bench.brokers.systems import SYSTEMS
from tidings.cli.bench.brokers.workload import Variant
from tidings.model.errors import TidingsError

WINDOW = 256  # publications in flight
SUBSCRIBING = 120.0  # seconds that it may take
_WARM = 2.0  # seconds of publishing before anything is measured

T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; a remark says why it is not all that was asked for."""

    system: str
    name: str
    variant: Variant
    subscriptions: int
    loading: float = 0.0  # seconds
    rate: float = 0.0  # events a second, published and delivered, with many in flight
    single: float = 0.0  # microseconds until an event is delivered, and acknowledged where that is asked, one at a time
    middle: float = 0.0  # milliseconds until delivery at half the rate: half of the events take longer
    high: float = 0.0  # one in a hundred takes longer
    remark: str = ""


def outcome(system: str, variant: Variant, subscriptions: int, seconds: float) -> Outcome:
    """Each of the three measurements takes that many seconds."""
    name = SYSTEMS[system].name
    found = Outcome(system=system, name=name, variant=variant, subscriptions=subscriptions)
    if lacking := SYSTEMS[system].lacking():
        return msgspec.structs.replace(found, remark=f"not installed: {lacking}")
    try:
        with Children() as children:
            return _measured(found, children, seconds)
    except TidingsError as error:
        return msgspec.structs.replace(found, remark=str(error))


def _measured(found: Outcome, children: Children, seconds: float) -> Outcome:
    system = SYSTEMS[found.system]
    port = system.start(children)
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def started(role: str, end: socket.socket) -> "_Program":
            job = Job(found.system, port, found.variant, found.subscriptions, end.fileno(), SUBSCRIBING)
            return _Program(role, job, children)

        subscriber = started("subscribe", ours)
        placed = subscriber.hear(Placed)
        publisher = started("publish", theirs)
        publisher.hear(type(None))
    found = msgspec.structs.replace(found, loading=placed.seconds)
    if placed.subscriptions < found.subscriptions:
        remark = f"only {placed.subscriptions:,} subscriptions were in place after {placed.seconds:.0f} s"
        return msgspec.structs.replace(found, remark=remark)

    publisher.ask(Load(_WARM, WINDOW), Carried)
    full = publisher.ask(Load(seconds, WINDOW), Carried)
    found = msgspec.structs.replace(found, rate=full.rate)
    if full.missing:  # also what was published before
        return msgspec.structs.replace(found, remark=f"in the end, {full.missing:,} events were still under way")
    alone = publisher.ask(Load(seconds, 1), Carried)
    subscriber.ask(None, Latency)
    half = publisher.ask(Load(seconds, pace=full.rate / 2), Carried)
    latency = subscriber.ask(None, Latency)
    return msgspec.structs.replace(
        found,
        single=1e6 / alone.rate,
        middle=latency.middle,
        high=latency.high,
        remark=f"at half that rate, {half.missing:,} events did not arrive" if half.missing else "",
    )


class _Program:
    """A publisher or a subscriber, as seen by whoever gives it orders."""

    def __init__(self, role: str, job: Job, children: Children) -> None:
        self._role, self._children = role, children
        command = [sys.executable, "-m", "tidings.cli.bench.brokers.programs", role, msgspec.json.encode(job).decode()]
        self._process: subprocess.Popen[bytes] = children.program(role, command, [job.descriptor])

    def ask(self, order: object, kind: type[T]) -> T:
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        return self.hear(kind)

    def hear(self, kind: type[T]) -> T:
        assert self._process.stdout is not None  # noqa: S101 - it was started with a pipe
        line = self._process.stdout.readline()
        if not line:
            said = self._children.last_words(self._role)
            raise TidingsError(f"the program that should {self._role} has ended: {said}")
        return msgspec.json.decode(line, type=kind)
