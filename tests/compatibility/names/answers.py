"""The names in the answers of a broker to its clients' questions: what `status`, `stats` and the others say."""

import re
import tempfile
from collections.abc import Iterator
from typing import Any

from tests.broker.running_broker import running_broker
from tests.compatibility.names.formats import paths_of
from tests.compatibility.names.stored import QUESTIONS
from tidings.client import connect_sync
from tidings.model.schema import Schema

# What stands below these is data: names of clients, filters, subjects and attributes.
_DATA = re.compile(r"\.(contexts|policies|operator_policies|schemas|hops|sent|links|notes\[\*\]|versions\[\*\])[.\[].*")
_EVENT = {"length": 3}


_ABOUT: dict[str, dict[str, Any]] = {
    "explain": {"event": _EVENT, "subscription": "s-1"},
    "forget": {"broker": "b9"},
    "replay": {"subscriptions": ["s-1"]},
    "schema": {"subject": "roads"},
}
_REFUSED = "security"  # by a broker without an identity


def lines() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running_broker(folder) as address,
        connect_sync(f"tidings://{address}", name="operator") as client,
    ):
        client.schema(Schema("roads", {"length": int}))
        client.set_context(x=1)
        client.advertise("length > 0", id="a-1")
        client.subscribe("length > 2", id="s-1", durable="box", publishers="x < 10")
        client.publish(_EVENT, safe="journaled")
        for question in QUESTIONS.keys() - {_REFUSED}:
            paths = paths_of(client.ask(question, **_ABOUT.get(question, {})))
            yield from (f"{question}{path}" for path in paths if _DATA.search(path) is None)
