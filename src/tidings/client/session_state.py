"""The state that a client restores at its broker after a reconnection: context, advertisements, subscriptions."""

import msgspec

from tidings.model.schema import Schema, versions_of
from tidings.model.values import Context
from tidings.protocol import requests
from tidings.protocol.frames import FrameKind

Request = tuple[FrameKind, msgspec.Struct]


class SessionState:
    """A client's context, advertisements, subscriptions and schemas, which it sets again wherever it connects next."""

    def __init__(self) -> None:
        self.context = Context()
        self.has_set_context = False  # by this program; otherwise the broker keeps an earlier program's context
        self.advertisements: dict[str, requests.AdvertiseRequest] = {}
        self.subscriptions: dict[str, requests.SubscribeRequest] = {}
        self.delegates: dict[str, bool] = {}
        self.schemas: dict[str, Schema] = {}
        self.announces_context = (
            False  # whether the broker needs the context: the client has subscribed, or lets others set it
        )

    def set_context(self, context: Context) -> None:
        """Set the client's context."""
        self.context, self.has_set_context = context, True

    def restore_requests(self) -> list[Request]:
        """Return the requests that restore the state at a broker, in the required order, the context first."""
        restored: list[Request] = [
            (FrameKind.DEFINE, requests.DefineSchemaRequest(0, schema.subject, tuple(versions_of(schema))))
            for schema in self.schemas.values()
        ]
        if self.announces_context and self.has_set_context:
            restored.append((FrameKind.SET_CONTEXT, requests.SetContextRequest(0, self.context)))
        restored += (
            (FrameKind.ENTRUST, requests.DelegateContextRequest(0, other, allowed))
            for other, allowed in self.delegates.items()
        )
        restored += ((FrameKind.ADVERTISE, request) for request in self.advertisements.values())
        restored += ((FrameKind.SUBSCRIBE, request) for request in self.subscriptions.values())
        return restored

    def with_policy(self, id: str, policy: str | None) -> None:  # noqa: A002
        """Record the new policy of a subscription or an advertisement."""
        if id in self.subscriptions:
            self.subscriptions[id] = msgspec.structs.replace(self.subscriptions[id], policy=policy)
        if id in self.advertisements:
            self.advertisements[id] = msgspec.structs.replace(self.advertisements[id], policy=policy)
