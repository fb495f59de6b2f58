"""Start one broker with one number of subscriptions, measure it, and stop it."""

import socket
import subprocess
import sys
from typing import TypeVar

import msgspec

from benchmarks.brokers.children import ChildProcesses
from benchmarks.brokers.load import Load, LoadResult
from benchmarks.brokers.programs import Job, Latency, SubscribeTiming
from benchmarks.brokers.systems import SYSTEMS
from benchmarks.brokers.workload import Variant
from tidings.model.errors import TidingsError

WINDOW = 256  # publications in flight
SUBSCRIBING = 120.0  # time limit in seconds
_WARM = 2.0  # seconds of publishing before the first measurement

T = TypeVar("T")


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a trial. A remark says why it is not complete."""

    system: str
    name: str
    variant: Variant
    subscriptions: int
    loading: float = 0.0  # seconds that subscribing took
    rate: float = 0.0  # events per second, published and delivered, with many in flight
    single: float = 0.0  # microseconds until an event is delivered (and acknowledged), with one in flight
    middle: float = 0.0  # median milliseconds until delivery at half the rate
    high: float = 0.0  # 99th percentile of the same
    remark: str = ""


def run_trial(system: str, variant: Variant, subscriptions: int, seconds: float) -> TrialResult:
    """Run a trial, with three measurements of `seconds` each.

    Args:
        system: The name of the system.
        variant: The variant of the workload.
        subscriptions: The number of subscriptions.
        seconds: The duration of each measurement.

    Returns:
        The outcome. If the system is not installed or fails, its remark says why.
    """
    name = SYSTEMS[system].name
    result = TrialResult(system=system, name=name, variant=variant, subscriptions=subscriptions)
    if missing := SYSTEMS[system].lacking():
        return msgspec.structs.replace(result, remark=f"not installed: {missing}")
    try:
        with ChildProcesses() as children:
            return _measure_trial(result, children, seconds)
    except TidingsError as error:
        return msgspec.structs.replace(result, remark=str(error))


def _measure_trial(result: TrialResult, children: ChildProcesses, seconds: float) -> TrialResult:
    system = SYSTEMS[result.system]
    port = system.start(children)
    subscriber_end, publisher_end = socket.socketpair()
    with subscriber_end, publisher_end:

        def start_program(role: str, end: socket.socket) -> "_Program":
            job = Job(result.system, port, result.variant, result.subscriptions, end.fileno(), SUBSCRIBING)
            return _Program(role, job, children)

        subscriber = start_program("subscribe", subscriber_end)
        subscribed = subscriber.receive(SubscribeTiming)
        publisher = start_program("publish", publisher_end)
        publisher.receive(type(None))
    result = msgspec.structs.replace(result, loading=subscribed.seconds)
    if subscribed.subscriptions < result.subscriptions:
        remark = f"only {subscribed.subscriptions:,} subscriptions were in place after {subscribed.seconds:.0f} s"
        return msgspec.structs.replace(result, remark=remark)

    publisher.ask(Load(_WARM, WINDOW), LoadResult)
    full = publisher.ask(Load(seconds, WINDOW), LoadResult)
    result = msgspec.structs.replace(result, rate=full.rate)
    if full.missing:  # including events of the warm-up
        return msgspec.structs.replace(result, remark=f"in the end, {full.missing:,} events were still under way")
    one_in_flight = publisher.ask(Load(seconds, 1), LoadResult)
    subscriber.ask(None, Latency)
    half = publisher.ask(Load(seconds, pace=full.rate / 2), LoadResult)
    latency = subscriber.ask(None, Latency)
    return msgspec.structs.replace(
        result,
        single=1e6 / one_in_flight.rate,
        middle=latency.middle,
        high=latency.high,
        remark=f"at half that rate, {half.missing:,} events did not arrive" if half.missing else "",
    )


class _Program:
    """A publisher or subscriber process, as the trial controls it."""

    def __init__(self, role: str, job: Job, children: ChildProcesses) -> None:
        self._role, self._children = role, children
        command = [sys.executable, "-m", "benchmarks.brokers.programs", role, msgspec.json.encode(job).decode()]
        self._process: subprocess.Popen[bytes] = children.program(role, command, [job.descriptor])

    def ask(self, order: object, kind: type[T]) -> T:
        """Send an order, and return the answer."""
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        return self.receive(kind)

    def receive(self, kind: type[T]) -> T:
        """Wait for the next answer. Raises TidingsError if the process has ended."""
        assert self._process.stdout is not None  # noqa: S101 - it was started with a pipe
        line = self._process.stdout.readline()
        if not line:
            output = self._children.last_words(self._role)
            raise TidingsError(f"the program that should {self._role} has ended: {output}")
        return msgspec.json.decode(line, type=kind)
