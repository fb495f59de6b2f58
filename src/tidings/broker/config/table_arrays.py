"""The tables of a broker's file that may occur several times: links, schemas, subscriptions, trust groups ..."""

from typing import Annotated, ClassVar

from msgspec import Meta

from tidings.broker.config.table_types import Address, ConfigTable, Names, check_names, config_key
from tidings.coerce import content_filter, context_filter
from tidings.configuration import check_parses
from tidings.model.errors import InvalidValueError
from tidings.model.event import checked_client
from tidings.model.limits import MAX_LINK_COST
from tidings.model.schema import Schema
from tidings.model.values import checked_name
from tidings.policy.placement import PolicyPlace, check_placement
from tidings.policy.policy import Policy


class LinkTable(ConfigTable, frozen=True, kw_only=True):
    """A link to a neighbouring broker. Both brokers configure the link; at least one of them has the address of the
    other."""

    broker: Annotated[str, config_key("The neighbour's name.", reloaded=True)]
    address: Annotated[str, config_key("The neighbour's address; empty: the neighbour dials.", reloaded=True)] = ""
    cost: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_LINK_COST)],
        config_key("What it costs to send something over the link; ways with a low sum are preferred.", reloaded=True),
    ] = 1

    def __post_init__(self) -> None:
        check_parses("broker", checked_client, self.broker)
        if self.address:
            check_parses("address", Address.parse, self.address)
            if not Address.parse(self.address).port:
                raise InvalidValueError("address: port 0 cannot be called; name the port")


class SchemaTable(ConfigTable, frozen=True, kw_only=True):
    """A schema that the broker defines when it starts."""

    subject: Annotated[str, config_key("The subject whose events it is for.")]
    attributes: Annotated[
        dict[str, str], config_key('The attributes, in order, each with its type: `{li = "int", lo = "str"}`.')
    ]

    def __post_init__(self) -> None:
        check_parses("attributes" if self.subject else "subject", self.schema)

    def schema(self) -> Schema:
        """Return the schema that the table describes."""
        return Schema(self.subject, self.attributes)


class ConfiguredFilter(ConfigTable, frozen=True, kw_only=True):
    """The keys that the broker's own subscriptions and advertisements share: a filter, and the policy it exists for."""

    placement: ClassVar[PolicyPlace]  # where its policy is placed, which decides what rules it may have
    content: Annotated[str, config_key("The filter of content; empty: everything.", reloaded=True)] = ""
    format: Annotated[
        str, config_key("What it is written in: `sql`, `topic`, `tags`, `regex`, `xpath` or `padres`.", reloaded=True)
    ] = "sql"
    policy: Annotated[str | None, config_key("The policy, as text.", reloaded=True)] = None
    policy_file: Annotated[
        str | None, config_key("The file of the policy; it is read again at every reload.", reloaded=True, is_path=True)
    ] = None

    def __post_init__(self) -> None:
        check_parses("content", content_filter, self.content, self.format)
        check_parses("policy", self._check_policy)

    def _check_policy(self) -> None:
        if self.policy is not None:
            check_placement(Policy.parse(self.policy), self.placement)


class ConfiguredSubscription(ConfiguredFilter, frozen=True, kw_only=True):
    """A subscription of the broker itself; its policy governs the publications that match it."""

    placement: ClassVar[PolicyPlace] = PolicyPlace.BROKER_SUBSCRIPTION
    publishers: Annotated[str | None, config_key("The filter of publishers' contexts; unset: all.", reloaded=True)] = (
        None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parses("publishers", context_filter, self.publishers)


class ConfiguredAdvertisement(ConfiguredFilter, frozen=True, kw_only=True):
    """An advertisement of the broker itself; its policy governs what is published under it."""

    placement: ClassVar[PolicyPlace] = PolicyPlace.BROKER_ADVERTISEMENT
    publisher_context: Annotated[
        Names | None,
        config_key(
            "The names of its publishers' context that subscribers may ask for; unset: all; `[]`: none.", reloaded=True
        ),
    ] = None
    subscriber_context: Annotated[
        Names, config_key("The names of subscribers' contexts that its publications ask for.", reloaded=True)
    ] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("publisher_context", "subscriber_context"):
            for name in getattr(self, key) or ():
                check_parses(key, checked_name, name)


class TrustGroupTable(ConfigTable, frozen=True, kw_only=True):
    """A trust group, which `AuthenticateReceiver` and `AuthenticateSender` in policies name."""

    group: Annotated[str, config_key("The group's name.", reloaded=True)]
    members: Annotated[
        Names,
        config_key("The clients and brokers that belong to it without proof, by their names alone.", reloaded=True),
    ] = ()
    secret_file: Annotated[
        str,
        config_key(
            "The file of the group's secret, which `tidings trust init` makes: who is connected proves with it that it "
            "belongs to the group; empty: only `members` do.",
            reloaded=True,
            is_path=True,
        ),
    ] = ""
    expiry_ms: Annotated[
        Annotated[int, Meta(ge=10, le=86_400_000)], config_key("How long a proof holds.", reloaded=True)
    ] = 600_000

    def __post_init__(self) -> None:
        if not self.group:
            raise InvalidValueError("group: a group needs a name")
        if not self.members and not self.secret_file:
            raise InvalidValueError("members: a group has members, or a secret in `secret_file`")
        check_names("members", self.members)
