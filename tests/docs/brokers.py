"""Brokers for the pages that talk to some: what is written for the usual ports goes to brokers that the tests start.

A page that names 127.0.0.1:7450 in what is run has a broker b1, with a journal, from then on to its end; one that also
names 127.0.0.1:7451 has b2, too, linked to b1, and so on. Their ports are free ones, so that pages do not meet.
"""

import doctest
import re
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from sybil import Example
from sybil.region import Lexeme

from tests.broker.running_broker import running_broker

Evaluator = Callable[[Example], Any]
_USUAL = re.compile(r"\b127\.0\.0\.1:(745[0-9])\b")
_FIRST = 7450
_KEY = "the brokers of this page"  # in its namespace, where no name can be the same


class Brokers:
    """As many in a row as a page names."""

    def __init__(self, count: int) -> None:
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._addresses: list[str] = []
        for number in range(1, count + 1):
            links = [{"broker": f"b{number + 1}"}] if number < count else []
            if self._addresses:
                links.append({"broker": f"b{number - 1}", "address": self._addresses[-1]})
            broker = {"name": f"b{number}", "settling_ms": 20}
            found = self._stack.enter_context(running_broker(folder / f"b{number}", broker=broker, links=links))
            self._addresses.append(str(found))

    def real(self, text: str) -> str:
        return _USUAL.sub(lambda found: self._addresses[int(found[1]) - _FIRST], text)

    def stop(self) -> None:
        self._stack.close()


def beside_brokers(evaluate: Evaluator) -> Evaluator:
    """The same evaluator, for what may name the usual ports."""
    return partial(_evaluated, evaluate)


def _evaluated(evaluate: Evaluator, example: Example) -> Any:
    parsed = example.parsed
    source = parsed.source if isinstance(parsed, doctest.Example) else parsed
    if _USUAL.search(source):
        if _KEY not in example.namespace:
            ports = map(int, _USUAL.findall(example.document.text))
            example.namespace[_KEY] = Brokers(max(ports) - _FIRST + 1)
        real = example.namespace[_KEY].real(source)
        if isinstance(parsed, doctest.Example):
            example.parsed = copy(parsed)
            example.parsed.source = real
        else:
            example.parsed = Lexeme(real, parsed.offset, parsed.line_offset)
    return evaluate(example)


def stop_brokers(namespace: dict[str, Any]) -> None:
    """At the end of a page."""
    if (brokers := namespace.pop(_KEY, None)) is not None:
        brokers.stop()
