"""Reads and writes step files: the history of a simulation as text, one step per line.

The header of a file defines the overlay and the clients. The steps follow in the order in which the simulation
takes them. A file with an `expect` line documents a fault that is not fixed yet. `step_line.py` reads and writes
single lines.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.routing import STRATEGIES
from tidings.simulation.checking.checker import Kind
from tidings.simulation.checking.history import History
from tidings.simulation.checking.steps import Step
from tidings.simulation.step_line import (
    HEADER,
    LineToken,
    Names,
    Word,
    read_broker,
    read_number,
    read_step,
    tokens_of,
    write_name,
    write_number,
    write_step,
)
from tidings.simulation.topologies import Edge, Topology

_KINDS: tuple[Kind, ...] = get_args(Kind)
_NETWORK = ("loss", "duplication", "reordering", "latency", "jitter")


class StepFile(msgspec.Struct, frozen=True):
    """A history, and the kind of violation that it is expected to show while a fault is not fixed."""

    history: History
    expect: Kind | None = None


def read(text: str, source: str = "steps") -> StepFile:
    """Parse a step file. Raises `InvalidValueError`, which names `source` and the line of the mistake."""
    header, steps = _Header(), list[Step]()
    number, names = 0, None
    for number, line in enumerate(text.split("\n"), start=1):
        with _at(source, number):
            tokens = tokens_of(line)
            if not tokens:
                continue
            first = tokens[0].word
            if not first.is_quoted and first.text in HEADER:
                if names is not None:
                    raise InvalidValueError(f"{first.text!r} belongs before the first step")
                header.take(first.text, tokens[1:])
            else:
                names = names or header.names()
                steps.append(read_step(tokens, names))
    with _at(source, number):
        return header.file(tuple(steps))


def write(file: StepFile, comments: Iterable[str] = ()) -> str:
    """Return the text of a step file, with comments at its beginning. `read` returns an equal step file."""
    return "\n".join([*_comment_lines(comments), *_header_lines(file), "", *map(write_step, file.history.steps), ""])


@contextmanager
def _at(source: str, line: int) -> Iterator[None]:
    """Add source and line to an `InvalidValueError`."""
    try:
        yield
    except InvalidValueError as error:
        raise InvalidValueError(f"{source}:{line}: {error}") from None


def _comment_lines(comments: Iterable[str]) -> Iterator[str]:
    for comment in comments:
        for line in comment.split("\n"):
            yield f"# {line}".rstrip()


def _header_lines(file: StepFile) -> Iterator[str]:
    history = file.history
    if file.expect is not None:
        yield f"expect {file.expect}"
    yield f"strategy {history.strategy}"
    yield f"seed {history.seed}"
    if history.network:
        yield " ".join(["network", *(f"{name}={write_number(part)}" for name, part in history.network.items())])
    if not history.resends:
        yield "resends no"
    yield " ".join(["brokers", *map(write_name, history.topology.brokers)])
    for one, other, cost in history.topology.edges:
        yield f"link {write_name(one)} {write_name(other)}" + (f" cost={cost}" if cost != 1 else "")
    for client, broker in history.homes.items():
        yield f"client {write_name(client)} {write_name(broker)}"


class _Header:
    """Collects the header's lines, and checks each against those before it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._edges: list[Edge] = []
        self._homes: dict[str, str] = {}

    def take(self, keyword: str, tokens: Sequence[LineToken]) -> None:
        if keyword == "link":
            self._edges.append(self._link(tokens))
        elif keyword == "client":
            name, broker = self._client(tokens)
            self._homes[name] = broker
        elif keyword in self._values:
            raise InvalidValueError(f"{keyword} is given twice")
        else:
            self._values[keyword] = _VALUES[keyword](tokens)

    def names(self) -> Names:
        return Names(self._topology(), frozenset(self._homes))

    def file(self, steps: tuple[Step, ...]) -> StepFile:
        fields = {name: value for name, value in self._values.items() if name not in ("brokers", "expect")}
        history = History(topology=self._topology(), homes=self._homes, steps=steps, **fields)
        return StepFile(history, self._values.get("expect"))

    def _topology(self) -> Topology:
        if "brokers" not in self._values:
            raise InvalidValueError("the line of the brokers is missing: brokers NAME NAME ...")
        return Topology(self._values["brokers"], tuple(self._edges))

    def _link(self, tokens: Sequence[LineToken]) -> Edge:
        topology = self._topology()
        one, other, *more = _needed(tokens, 2, "link BROKER BROKER [cost=NUMBER]")
        edge = Edge(read_broker(one.word, topology), read_broker(other.word, topology), _cost(more))
        Topology.of([*self._edges, edge])  # refuses a link of a broker to itself, a second one, and a cost of 0
        return edge

    def _client(self, tokens: Sequence[LineToken]) -> tuple[str, str]:
        topology = self._topology()
        name, broker, *more = _needed(tokens, 2, "client NAME BROKER")
        if more:
            raise InvalidValueError(f"{more[0]} is too much")
        client = checked_client(name.word.text)
        if client in topology.brokers:
            raise InvalidValueError(f"{client} is the name of a broker")
        if client in self._homes:
            raise InvalidValueError(f"the client {client} is given twice")
        return client, read_broker(broker.word, topology)


def _needed(tokens: Sequence[LineToken], count: int, usage: str) -> Sequence[LineToken]:
    if len(tokens) < count:
        raise InvalidValueError(f"too few words; the line is written: {usage}")
    return tokens


def _cost(tokens: Sequence[LineToken]) -> int:
    if not tokens:
        return 1
    if len(tokens) > 1 or tokens[0].key != Word("cost"):
        raise InvalidValueError(f"{tokens[-1]} is too much; only cost=NUMBER may follow")
    return _integer(LineToken(tokens[0].values).word, "cost")


def _integer(word: Word, name: str) -> int:
    try:
        return int(word.text)
    except ValueError:
        raise InvalidValueError(f"{name}: {word.text!r:.40} is not an integer") from None


# Header lines that occur at most once


def _single(tokens: Sequence[LineToken], name: str) -> Word:
    if len(tokens) != 1:
        raise InvalidValueError(f"{name}: one word is needed")
    return tokens[0].word


def _choice(tokens: Sequence[LineToken], name: str, choices: Iterable[str]) -> str:
    word = _single(tokens, name)
    if word.text not in choices:
        raise InvalidValueError(f"{name}: {word.text!r} is none of {', '.join(choices)}")
    return word.text


def _network(tokens: Sequence[LineToken]) -> dict[str, float]:
    network: dict[str, float] = {}
    for token in tokens:
        if token.key is None or token.key.text not in _NETWORK:
            raise InvalidValueError(f"network: {token} is none of {', '.join(f'{name}=NUMBER' for name in _NETWORK)}")
        if token.key.text in network:
            raise InvalidValueError(f"network: {token.key.text} is given twice")
        network[token.key.text] = read_number(LineToken(token.values).word, token.key.text)
    return network


def _brokers(tokens: Sequence[LineToken]) -> tuple[str, ...]:
    brokers = tuple(checked_client(token.word.text) for token in tokens)
    if not brokers:
        raise InvalidValueError("brokers: at least one is needed")
    if len(set(brokers)) < len(brokers):
        raise InvalidValueError("brokers: a name is given twice")
    return brokers


_VALUES: dict[str, Callable[[Sequence[LineToken]], Any]] = {
    "expect": lambda tokens: _choice(tokens, "expect", _KINDS),
    "strategy": lambda tokens: _choice(tokens, "strategy", sorted(STRATEGIES)),
    "seed": lambda tokens: _integer(_single(tokens, "seed"), "seed"),
    "network": _network,
    "resends": lambda tokens: _choice(tokens, "resends", ("yes", "no")) == "yes",
    "brokers": _brokers,
}
