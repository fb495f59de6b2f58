"""Reload: apply another configuration to a running broker, as far as that needs no restart."""

from typing import Protocol

import msgspec

from tidings.broker.config import BrokerConfiguration, ConfigurationChange
from tidings.broker.config.configuration import ActiveConfiguration
from tidings.broker.links.links import NeighbourLinks
from tidings.broker.net.rate_limits import RefusedAttempts
from tidings.broker.net.tls import Certificates
from tidings.broker.ports import OperationPort, Scheduler, Sessions
from tidings.broker.security.topic_security import TopicFiles, read_files
from tidings.broker.security.trust_challenges import TrustGroups, groups_of
from tidings.coerce import content_filter, context_filter
from tidings.engine.operations import Advertise, Define, Subscribe, Unadvertise, Unsubscribe
from tidings.engine.settings import Settings
from tidings.model.advertisement import Advertisement
from tidings.model.errors import TidingsError
from tidings.model.subscription import Subscription


class ReloadNode(OperationPort, Protocol):
    """What a reload needs of the node."""

    name: str

    def set_settings(self, settings: Settings) -> None:
        """Apply other settings from now on."""
        ...


class Reload:
    """Applies other configurations to a running broker.

    Args:
        configuration: The configuration in force.
        scheduler: The turns of the event loop.
        node: Gets settings, schemas, subscriptions and advertisements.
        sessions: Get other limits.
        links: Are dialed, or closed.
        attempts: Get other limits.
        trust_groups: Are read again.
        security: Gets topic records and revocation lists; None if the broker has no identity.
        certificates: Are read again; None without TLS.
    """

    def __init__(
        self,
        configuration: ActiveConfiguration,
        *,
        scheduler: Scheduler,
        node: ReloadNode,
        sessions: Sessions,
        links: NeighbourLinks,
        attempts: RefusedAttempts,
        trust_groups: TrustGroups,
        security: TopicFiles | None,
        certificates: Certificates | None,
    ) -> None:
        self._configuration, self._scheduler, self._node = configuration, scheduler, node
        self._sessions, self._links, self._attempts = sessions, links, attempts
        self._trust_groups, self._security, self._certificates = trust_groups, security, certificates

    async def apply(self, requested: BrokerConfiguration) -> ConfigurationChange:
        """Apply another configuration; return the keys that were applied and those that need a restart.

        Certificates, revocation lists and topic records are read again in any case. Raises a `TidingsError` if one of
        these files cannot be used; the configuration in force then stays as it was.
        """
        former = self._configuration.current
        change = former.changes(requested)
        groups = groups_of(requested)
        if self._security is not None:
            self._security.apply_files(read_files(requested.security))
        if self._certificates is not None:
            self._certificates.reload()
        self._trust_groups.reload(groups)
        self._configuration.current = effective = former.with_reloadable(requested)
        self._node.set_settings(engine_settings(effective))
        if effective.limits != former.limits:
            self._attempts.set_limits(effective.limits)
            for session in self._sessions.all():
                session.set_limits(effective.limits)
        install_configured(self._node, effective, former)
        if self._security is not None:
            self._security.configure(effective.security)
        if "links" in change.taken_over:
            await self._change_links(former, effective)
        self._scheduler.flush()
        return change

    async def _change_links(self, former: BrokerConfiguration, effective: BrokerConfiguration) -> None:
        """Close the links that are no longer configured, or differently, and dial those that are new."""
        tables = {table.broker: table for table in effective.links}
        for table in former.links:
            if tables.get(table.broker) != table:
                await self._links.disconnect(table.broker)
        self._links.dial()


def engine_settings(configuration: BrokerConfiguration) -> Settings:
    """Return the engine's settings for a configuration; a broker with a journal resends what others missed."""
    return msgspec.structs.replace(configuration.broker.settings(), resends=bool(configuration.journal.folder))


def install_configured(
    node: ReloadNode, configuration: BrokerConfiguration, former: BrokerConfiguration | None = None
) -> None:
    """Install the schemas, subscriptions and advertisements of a configuration, as the broker's own.

    With a `former` configuration, only the differences to it are applied. Raises a `TidingsError` if the engine refuses
    a subscription or an advertisement.
    """
    for table in configuration.schemas:
        schema = table.schema()
        if node.engine.state.subjects.find(schema.subject) != schema:
            node.operate(Define(node.name, schema), sync=False)
    _install_subscriptions(node, configuration, former)
    _install_advertisements(node, configuration, former)


def _install_subscriptions(
    node: ReloadNode, configuration: BrokerConfiguration, former: BrokerConfiguration | None
) -> None:
    """Install the configured subscriptions under ids with their numbers; remove those with higher numbers."""
    former_tables = () if former is None else former.subscriptions
    for number, table in enumerate(configuration.subscriptions):
        if former_tables[number : number + 1] == (table,):
            continue
        subscription = Subscription.of(
            content_filter(table.content, table.format),
            id=f"{node.name}.subscription.{number}",
            subscriber=node.name,
            publishers=context_filter(table.publishers),
            policy=table.policy,
        )
        _operate(node, Subscribe(subscription))
    for number in range(len(configuration.subscriptions), len(former_tables)):
        _operate(node, Unsubscribe(node.name, f"{node.name}.subscription.{number}"))


def _install_advertisements(
    node: ReloadNode, configuration: BrokerConfiguration, former: BrokerConfiguration | None
) -> None:
    """Install the configured advertisements under ids with their numbers; remove those with higher numbers."""
    former_tables = () if former is None else former.advertisements
    for number, table in enumerate(configuration.advertisements):
        if former_tables[number : number + 1] == (table,):
            continue
        advertisement = Advertisement.of(
            content_filter(table.content, table.format),
            id=f"{node.name}.advertisement.{number}",
            publisher=node.name,
            publisher_context=table.publisher_context,
            subscriber_context=table.subscriber_context,
            policy=table.policy,
        )
        _operate(node, Advertise(advertisement))
    for number in range(len(configuration.advertisements), len(former_tables)):
        _operate(node, Unadvertise(node.name, f"{node.name}.advertisement.{number}"))


def _operate(node: ReloadNode, operation: Subscribe | Advertise | Unsubscribe | Unadvertise) -> None:
    refused = node.operate(operation, sync=False).refused
    if refused is not None:
        raise TidingsError(f"the broker refuses a subscription or advertisement of its configuration: {refused.reason}")
