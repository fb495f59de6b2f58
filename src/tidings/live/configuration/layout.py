"""Everything that a broker's file may say: which tables there are, and what must fit together in them."""

from collections.abc import Iterator
from typing import get_args

import msgspec

from tidings.configuration.toml import Steps
from tidings.live.configuration.address import Address
from tidings.live.configuration.kinds import Table
from tidings.live.configuration.own import Link, OwnAdvertisement, OwnSubscription, SchemaTable, Trust
from tidings.live.configuration.security import Security
from tidings.live.configuration.tables import Broker, Heartbeat, Http, Journal, Limits, Logs, Tls
from tidings.model.limits import MAX_LINKS

_UNIQUE = {"links": "broker", "schemas": "subject", "trust": "group"}


class Layout(Table, frozen=True, kw_only=True):
    broker: Broker = Broker()
    journal: Journal = Journal()
    links: tuple[Link, ...] = ()
    heartbeat: Heartbeat = Heartbeat()
    limits: Limits = Limits()
    tls: Tls = Tls()
    security: Security = Security()
    http: Http = Http()
    logs: Logs = Logs()
    schemas: tuple[SchemaTable, ...] = ()
    subscriptions: tuple[OwnSubscription, ...] = ()
    advertisements: tuple[OwnAdvertisement, ...] = ()
    trust: tuple[Trust, ...] = ()

    def mistakes(self) -> Iterator[tuple[Steps, str]]:
        """What does not fit together: the way to it in the file, and what to say of it."""
        for table, key in _UNIQUE.items():
            names = [getattr(one, key) for one in getattr(self, table)]
            for number, name in enumerate(names):
                if name in names[:number]:
                    yield (table, number, key), f"'{name}' stands in another table of {table}, too"
        for number, link in enumerate(self.links):
            if link.broker == self.broker.name:
                yield ("links", number, "broker"), "a broker has no link to itself"
        if len(self.links) > MAX_LINKS:
            yield ("links", MAX_LINKS), f"more than MAX_LINKS ({MAX_LINKS:,})"
        has_tls = self.security.of_transport(self.tls).is_on
        if not (has_tls or self.tls.plain_beyond_loopback or Address.parse(self.broker.listen).is_loopback):
            told = "other machines can connect there, and there is no TLS; give certificates in [tls], or say "
            yield ("broker", "listen"), told + "plain_beyond_loopback = true there if the network can be trusted"
        for table in ("subscriptions", "advertisements"):
            for number, one in enumerate(getattr(self, table)):
                if one.policy is not None and one.policy_file is not None:
                    yield (table, number, "policy_file"), "there is a policy already; one of the two"


TABLES: dict[str, type[Table]] = {
    one.name: (get_args(one.type) or (one.type,))[0] for one in msgspec.structs.fields(Layout)
}
SEVERAL = frozenset(one.name for one in msgspec.structs.fields(Layout) if get_args(one.type))
ONCE = {name: table for name, table in TABLES.items() if name not in SEVERAL}
