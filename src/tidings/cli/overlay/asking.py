"""Questions to running brokers, asked by their operator."""

from typing import Any

from tidings.client.connecting import connect_sync
from tidings.client.identity import Identity

OPERATOR = "operator"
_PATIENCE = 2.0  # seconds
_ANSWER = 60.0  # seconds: the tables of a broker may be large


def ask(address: str, question: str, name: str = "", identity: Identity | None = None) -> Any:
    """The answer of the broker at `address`, asked as an observer: so the question changes no routing table. Without a
    name, the client has a random one."""
    with connect_sync(address, name, identity, patience=_PATIENCE, observer=True) as client:
        return client.ask(question, timeout=_ANSWER)
