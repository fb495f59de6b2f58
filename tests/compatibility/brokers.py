"""What clients of a broker find out and are given: shared by the tests that start brokers on earlier data."""

from typing import Any

import tidings as td
from tests.compatibility.contents import notification_fields

PATIENCE = 60.0  # seconds for what must come


def broker_tables(address: str) -> dict[str, Any]:
    """The subscriptions, contexts, policies and schemas of a broker, without what brokers keep for themselves."""
    with td.connect_sync(address, name="operator") as operator:
        tables = operator.ask("tables")
    subscriptions = tables["subscriptions"]
    return {
        "subscriptions": {
            one["id"]: [one["subscriber"], one["content"], one.get("publishers")] for one in subscriptions
        },
        **{name: tables[name] for name in ("contexts", "policies", "schemas")},
    }


def take_durable(address: str, client: str, durable: str, count: int, **filters: Any) -> list[dict[str, Any]]:
    """What waits for a client's durable subscription, which acknowledges it: that many notifications, or more if more
    were ready with them."""
    notes: list[td.Notification] = []
    with td.connect_sync(address, name=client) as connected:
        subscription = connected.subscribe(durable=durable, **filters)
        while len(notes) < count and (taken := subscription.take(timeout=PATIENCE)):
            notes += taken
        subscription.acknowledge_all()
    return list(map(notification_fields, notes))
