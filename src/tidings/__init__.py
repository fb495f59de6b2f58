"""Tidings: content-based, context-aware, policy-governed publish/subscribe.

Where to begin, after `import tidings as td`:

    td.Hub()                         publish and subscribe in one process; `hub.client(name)` is a HubClient
    td.connect(address, name)        a Client of a broker, for `async with`
    td.connect_sync(address, name)   the same with methods that simply return
    td.ClientApi                     what all of these clients have in common
    td.Filter, td.ContextFilter      the filters of subscriptions: parse, match, compare
    td.Policy, td.policies           rules that block or transform messages; ready-made ones
    td.Schema                        the attributes of a subject's events
    td.Index                         matching alone: many filters, one event or a table of them
    td.security                      authorities, identities, tokens and sealed events
    td.TidingsError                  the base of all errors

    >>> hub = td.Hub()
    >>> subscription = hub.client("car-1").subscribe("msg = 'accident'")
    >>> receipt = hub.client("cam-1").publish({"msg": "accident"})
    >>> [notification.attributes["msg"] for notification in subscription.take()]
    ['accident']

Everything public is importable from here and loaded when it is first used, so that `import tidings` stays quick. The
package `tidings.spark` has the pipeline, `tidings.testing` what tests of programs need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidings._version import __version__

if TYPE_CHECKING:
    from tidings import security
    from tidings.client import Client, ClientApi, ConnectionState, connect, connect_sync
    from tidings.filters import ContextFilter, Filter, merge
    from tidings.hub import Hub, HubAdvertisement, HubClient, HubSubscription, Receipt
    from tidings.matching.covering import Relation
    from tidings.model.advertisement import Advertisement
    from tidings.model.errors import (
        ClosedError,
        FilterError,
        IndexDamagedError,
        InvalidValueError,
        MissingPackageError,
        PolicyError,
        PublishedBeforeError,
        RefusedError,
        RequestTimeoutError,
        SchemaError,
        SecurityError,
        TidingsError,
        UnreachableError,
    )
    from tidings.model.event import Event
    from tidings.model.explanation import Explanation
    from tidings.model.identity import uuid7
    from tidings.model.notification import Notification
    from tidings.model.schema import AttributeFilter, Schema
    from tidings.model.subjects import Subjects
    from tidings.model.subscription import Subscription
    from tidings.model.values import Attributes, Context
    from tidings.policy import Policy, policies, policy_action, policy_condition
    from tidings.text_index import Index

_HOMES = {
    "Advertisement": "tidings.model.advertisement",
    "AttributeFilter": "tidings.model.schema",
    "Attributes": "tidings.model.values",
    "Client": "tidings.client",
    "ClientApi": "tidings.client",
    "ClosedError": "tidings.model.errors",
    "ConnectionState": "tidings.client",
    "Context": "tidings.model.values",
    "ContextFilter": "tidings.filters",
    "Event": "tidings.model.event",
    "Explanation": "tidings.model.explanation",
    "Filter": "tidings.filters",
    "FilterError": "tidings.model.errors",
    "Hub": "tidings.hub",
    "HubAdvertisement": "tidings.hub",
    "HubClient": "tidings.hub",
    "HubSubscription": "tidings.hub",
    "Index": "tidings.text_index",
    "IndexDamagedError": "tidings.model.errors",
    "InvalidValueError": "tidings.model.errors",
    "MissingPackageError": "tidings.model.errors",
    "Notification": "tidings.model.notification",
    "Policy": "tidings.policy",
    "PolicyError": "tidings.model.errors",
    "Receipt": "tidings.model.receipt",
    "PublishedBeforeError": "tidings.model.errors",
    "RefusedError": "tidings.model.errors",
    "Relation": "tidings.matching.covering",
    "RequestTimeoutError": "tidings.model.errors",
    "Schema": "tidings.model.schema",
    "SchemaError": "tidings.model.errors",
    "SecurityError": "tidings.model.errors",
    "Subjects": "tidings.model.subjects",
    "Subscription": "tidings.model.subscription",
    "TidingsError": "tidings.model.errors",
    "UnreachableError": "tidings.model.errors",
    "connect": "tidings.client",
    "connect_sync": "tidings.client",
    "merge": "tidings.filters",
    "policies": "tidings.policy",
    "policy_action": "tidings.policy",
    "policy_condition": "tidings.policy",
    "security": "tidings.security",  # a package, not a name in a module
    "uuid7": "tidings.model.identity",
}

__all__ = [
    "Advertisement",
    "AttributeFilter",
    "Attributes",
    "Client",
    "ClientApi",
    "ClosedError",
    "ConnectionState",
    "Context",
    "ContextFilter",
    "Event",
    "Explanation",
    "Filter",
    "FilterError",
    "Hub",
    "HubAdvertisement",
    "HubClient",
    "HubSubscription",
    "Index",
    "IndexDamagedError",
    "InvalidValueError",
    "MissingPackageError",
    "Notification",
    "Policy",
    "PolicyError",
    "PublishedBeforeError",
    "Receipt",
    "RefusedError",
    "Relation",
    "RequestTimeoutError",
    "Schema",
    "SchemaError",
    "SecurityError",
    "Subjects",
    "Subscription",
    "TidingsError",
    "UnreachableError",
    "__version__",
    "connect",
    "connect_sync",
    "merge",
    "policies",
    "policy_action",
    "policy_condition",
    "security",
    "uuid7",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tidings' has no attribute {name!r}")
    module = import_module(home)
    value = globals()[name] = module if home == f"tidings.{name}" else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
