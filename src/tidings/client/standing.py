"""What stands of a client: what it offers, wants and says of itself, to be said again wherever it connects."""

import msgspec

from tidings.model.schema import Schema
from tidings.model.schematext import versions_of
from tidings.model.values import Context
from tidings.protocol import requests
from tidings.protocol.frames import Kind

Request = tuple[Kind, msgspec.Struct]


class Standing:
    def __init__(self) -> None:
        self.context = Context()
        self.has_set_context = False  # in this program: else the broker keeps the one of an earlier program
        self.advertisements: dict[str, requests.Advertise] = {}
        self.subscriptions: dict[str, requests.Subscribe] = {}
        self.entrusted: dict[str, bool] = {}
        self.schemas: dict[str, Schema] = {}
        self.tells_context = (
            False  # whether its broker needs to know the context: it has subscribed, or let others set it
        )

    def set_context(self, context: Context) -> None:
        self.context, self.has_set_context = context, True

    def said_again(self) -> list[Request]:
        """In the order in which a broker must hear it: who somebody is, before what it wants."""
        said: list[Request] = [
            (Kind.DEFINE, requests.Define(0, one.subject, tuple(versions_of(one)))) for one in self.schemas.values()
        ]
        if self.tells_context and self.has_set_context:
            said.append((Kind.SET_CONTEXT, requests.SetContext(0, self.context)))
        said += ((Kind.ENTRUST, requests.Entrust(0, other, allowed)) for other, allowed in self.entrusted.items())
        said += ((Kind.ADVERTISE, one) for one in self.advertisements.values())
        said += ((Kind.SUBSCRIBE, one) for one in self.subscriptions.values())
        return said

    def with_policy(self, id: str, policy: str | None) -> None:  # noqa: A002
        """A policy was set on something that stands."""
        if id in self.subscriptions:
            self.subscriptions[id] = msgspec.structs.replace(self.subscriptions[id], policy=policy)
        if id in self.advertisements:
            self.advertisements[id] = msgspec.structs.replace(self.advertisements[id], policy=policy)
