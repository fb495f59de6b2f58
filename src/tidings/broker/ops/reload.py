"""Reload: apply another configuration to a running broker, as far as that needs no restart."""

from typing import TYPE_CHECKING, Protocol

from tidings.broker.config import BrokerConfiguration, ConfigurationChange
from tidings.broker.security.topic_security import read_files
from tidings.broker.security.trust_challenges import groups_of
from tidings.coerce import content_filter, context_filter
from tidings.engine import Engine
from tidings.engine.operations import Advertise, Define, Operation, Subscribe, Unadvertise, Unsubscribe
from tidings.model.advertisement import Advertisement
from tidings.model.errors import TidingsError
from tidings.model.subscription import Subscription
from tidings.runtime.outcome import OperationOutcome
from tidings.runtime.subscription_registry import RegisteredSubscription

if TYPE_CHECKING:
    from tidings.broker.broker import Broker


async def reload(broker: "Broker", requested: BrokerConfiguration) -> ConfigurationChange:
    """Apply another configuration to a broker; return the keys that were applied and those that need a restart.

    Certificates, revocation lists and topic records are read again in any case. Raises a `TidingsError` if one of these
    files cannot be used; the configuration in force then stays as it was.
    """
    former = broker.configuration
    change = former.changes(requested)
    groups = groups_of(requested)
    if broker.topic_security is not None:
        broker.topic_security.apply_files(read_files(requested.security))
    if broker.certificates is not None:
        broker.certificates.reload()
    broker.trust_challenges.reload(groups)
    broker.configuration = effective = former.with_reloadable(requested)
    node = broker.node
    node.set_settings(broker.engine_settings(effective))
    if effective.limits != former.limits:
        broker.admission.set_limits(effective.limits)
        for session in broker.all_sessions():
            session.set_limits(effective.limits)
    install_configured(node, effective, former)
    if broker.topic_security is not None:
        broker.topic_security.configure(effective.security)
    if "links" in change.taken_over:
        await _change_links(broker, former, effective)
    broker.flush()
    return change


async def _change_links(broker: "Broker", former: BrokerConfiguration, effective: BrokerConfiguration) -> None:
    """Close the links that are no longer configured, or differently, and dial those that are new."""
    tables = {table.broker: table for table in effective.links}
    for table in former.links:
        if tables.get(table.broker) != table:
            await broker.link_registry.disconnect(table.broker)
    broker.link_registry.dial()


class ConfiguredNode(Protocol):
    """A node, which processes the operations of the broker itself."""

    name: str

    @property
    def engine(self) -> Engine: ...

    def operate(self, operation: Operation, *, sync: bool) -> OperationOutcome[RegisteredSubscription]:
        """Process an operation; the outcome says whether it was refused."""
        ...


def install_configured(
    node: ConfiguredNode, configuration: BrokerConfiguration, former: BrokerConfiguration | None = None
) -> None:
    """Install the schemas, subscriptions and advertisements of a configuration, as the broker's own.

    With a `former` configuration, only the differences to it are applied. Raises a `TidingsError` if the engine refuses
    a subscription or an advertisement.
    """
    for table in configuration.schemas:
        schema = table.schema()
        if node.engine.subjects.find(schema.subject) != schema:
            node.operate(Define(node.name, schema), sync=False)
    _install_subscriptions(node, configuration, former)
    _install_advertisements(node, configuration, former)


def _install_subscriptions(
    node: ConfiguredNode, configuration: BrokerConfiguration, former: BrokerConfiguration | None
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
    node: ConfiguredNode, configuration: BrokerConfiguration, former: BrokerConfiguration | None
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


def _operate(node: ConfiguredNode, operation: Subscribe | Advertise | Unsubscribe | Unadvertise) -> None:
    refused = node.operate(operation, sync=False).refused
    if refused is not None:
        raise TidingsError(f"what the broker itself has is refused: {refused.reason}")
