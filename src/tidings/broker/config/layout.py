"""The layout of a broker's configuration file: its tables, and the rules that span several tables."""

from collections.abc import Iterator
from typing import get_args

import msgspec

from tidings.broker.config.table_arrays import (
    ConfiguredAdvertisement,
    ConfiguredSubscription,
    LinkTable,
    SchemaTable,
    TrustGroupTable,
)
from tidings.broker.config.table_types import Address, ConfigTable
from tidings.broker.config.tables import (
    BrokerTable,
    HeartbeatTable,
    HttpTable,
    JournalTable,
    LimitsTable,
    LogsTable,
    SecurityTable,
    TlsTable,
)
from tidings.configuration import Steps
from tidings.model.limits import MAX_LINKS

_UNIQUE = {"links": "broker", "schemas": "subject", "trust": "group"}


# All tables of the file, by name. Not a docstring: that would appear in the JSON schema which `tidings config` prints.
class Layout(ConfigTable, frozen=True, kw_only=True):
    broker: BrokerTable = BrokerTable()
    journal: JournalTable = JournalTable()
    links: tuple[LinkTable, ...] = ()
    heartbeat: HeartbeatTable = HeartbeatTable()
    limits: LimitsTable = LimitsTable()
    tls: TlsTable = TlsTable()
    security: SecurityTable = SecurityTable()
    http: HttpTable = HttpTable()
    logs: LogsTable = LogsTable()
    schemas: tuple[SchemaTable, ...] = ()
    subscriptions: tuple[ConfiguredSubscription, ...] = ()
    advertisements: tuple[ConfiguredAdvertisement, ...] = ()
    trust: tuple[TrustGroupTable, ...] = ()

    def violations(self) -> Iterator[tuple[Steps, str]]:
        """Yield each violation of a rule that spans several keys: the path of the key, and the message."""
        for table, key in _UNIQUE.items():
            names = [getattr(entry, key) for entry in getattr(self, table)]
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
            message = "other machines can connect there, and there is no TLS; give certificates in [tls], or say "
            yield ("broker", "listen"), message + "plain_beyond_loopback = true there if the network can be trusted"
        for table in ("subscriptions", "advertisements"):
            for number, entry in enumerate(getattr(self, table)):
                if entry.policy is not None and entry.policy_file is not None:
                    yield (table, number, "policy_file"), "there is a policy already; one of the two"


TABLES: dict[str, type[ConfigTable]] = {
    field.name: (get_args(field.type) or (field.type,))[0] for field in msgspec.structs.fields(Layout)
}
ARRAY_TABLES = frozenset(field.name for field in msgspec.structs.fields(Layout) if get_args(field.type))
SINGLE_TABLES = {name: table for name, table in TABLES.items() if name not in ARRAY_TABLES}
