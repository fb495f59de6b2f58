"""The tables of a broker's file that may stand there several times: its links, and what it has of its own."""

from typing import Annotated, ClassVar

from msgspec import Meta

from tidings.configuration.checks import readable
from tidings.live.configuration.address import Address
from tidings.live.configuration.kinds import Names, Table, check_names, said
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_LINK_COST
from tidings.model.schema import Schema
from tidings.model.values import checked_name
from tidings.policy.placement import Where, check_placement
from tidings.policy.policy import Policy
from tidings.texts import content_filter, context_filter


class Link(Table, frozen=True, kw_only=True):
    """A neighbour in the overlay. Both brokers name the link; one of them, or both, knows where to call the other."""

    broker: Annotated[str, said("The neighbour's name.", reloaded=True)]
    address: Annotated[str, said("Where it listens; empty: it is the neighbour who calls.", reloaded=True)] = ""
    cost: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_LINK_COST)],
        said("What it costs to send something over the link; ways with a low sum are preferred.", reloaded=True),
    ] = 1

    def __post_init__(self) -> None:
        readable("broker", checked_client, self.broker)
        if self.address:
            readable("address", Address.parse, self.address)
            if not Address.parse(self.address).port:
                raise InvalidValueError("address: port 0 cannot be called; name the port")


class SchemaTable(Table, frozen=True, kw_only=True):
    """A schema that the broker knows from the start."""

    subject: Annotated[str, said("The subject whose events it is for.")]
    attributes: Annotated[
        dict[str, str], said('The attributes, in order, each with its type: `{li = "int", lo = "str"}`.')
    ]

    def __post_init__(self) -> None:
        readable("attributes" if self.subject else "subject", self.schema)

    def schema(self) -> Schema:
        return Schema(self.subject, self.attributes)


class Ruled(Table, frozen=True, kw_only=True):
    """What subscriptions and advertisements of the broker itself have in common: they are there for their policies."""

    stands: ClassVar[Where]  # its policy
    content: Annotated[str, said("The filter of content; empty: everything.", reloaded=True)] = ""
    format: Annotated[
        str, said("What it is written in: `sql`, `topic`, `tags`, `regex`, `xpath` or `padres`.", reloaded=True)
    ] = "sql"
    policy: Annotated[str | None, said("The policy, as text.", reloaded=True)] = None
    policy_file: Annotated[
        str | None, said("The file of the policy, read anew at every reload.", reloaded=True, is_path=True)
    ] = None

    def __post_init__(self) -> None:
        readable("content", content_filter, self.content, self.format)
        readable("policy", self._check_policy)

    def _check_policy(self) -> None:
        if self.policy is not None:
            check_placement(Policy.parse(self.policy), self.stands)


class OwnSubscription(Ruled, frozen=True, kw_only=True):
    """A subscription of the broker itself: its policy governs what matches."""

    stands: ClassVar[Where] = Where.BROKER_SUBSCRIPTION
    publishers: Annotated[str | None, said("The filter of publishers' contexts; unset: all.", reloaded=True)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        readable("publishers", context_filter, self.publishers)


class OwnAdvertisement(Ruled, frozen=True, kw_only=True):
    """An advertisement of the broker itself: its policy governs what is published under it."""

    stands: ClassVar[Where] = Where.BROKER_ADVERTISEMENT
    publisher_context: Annotated[
        Names | None,
        said(
            "The names of its publishers' context that subscribers may ask for; unset: all; `[]`: none.", reloaded=True
        ),
    ] = None
    subscriber_context: Annotated[
        Names, said("The names of subscribers' contexts that its publications ask for.", reloaded=True)
    ] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("publisher_context", "subscriber_context"):
            for name in getattr(self, key) or ():
                readable(key, checked_name, name)


class Trust(Table, frozen=True, kw_only=True):
    """A trust group, as `AuthenticateReceiver` and `AuthenticateSender` in policies ask for it."""

    group: Annotated[str, said("The group's name.", reloaded=True)]
    members: Annotated[
        Names, said("The clients and brokers that belong to it without proof, by their names alone.", reloaded=True)
    ] = ()
    secret_file: Annotated[
        str,
        said(
            "The file of the group's secret, which `tidings trust init` makes: who is connected proves with it that it "
            "belongs to the group; empty: only `members` do.",
            reloaded=True,
            is_path=True,
        ),
    ] = ""
    expiry_ms: Annotated[
        Annotated[int, Meta(ge=10, le=86_400_000)], said("After this a proof must be given anew.", reloaded=True)
    ] = 600_000

    def __post_init__(self) -> None:
        if not self.group:
            raise InvalidValueError("group: a group needs a name")
        if not self.members and not self.secret_file:
            raise InvalidValueError("members: a group has members, or a secret in `secret_file`")
        check_names("members", self.members)
