"""Headers: what a publication, a filter or a context carries from broker to broker beside its own content."""

import msgspec

from tidings.engine.state.filter_rules import Ruling
from tidings.filters import Filter
from tidings.model.notification import Trace
from tidings.model.values import Value
from tidings.policy.evaluation.compiled import compile_rule
from tidings.policy.evaluation.evaluation import RuleSource
from tidings.policy.policy import Policy
from tidings.routing.bloom import Bloom


class CopyChanges(msgspec.Struct, frozen=True, array_like=True):
    """The changes that policy rules have decided for a publication, for all its receivers or for one subscription."""

    blocked: bool = False
    removed: frozenset[str] = frozenset()
    added: tuple[tuple[str, Value], ...] = ()
    trace: tuple[Trace, ...] = ()
    payload: bytes | None = None  # the converted payload; None: the event's own payload

    @property
    def is_plain(self) -> bool:
        """Whether there are no changes."""
        return self is PLAIN or self == PLAIN


PLAIN = CopyChanges()
ABROAD = ""  # stands for all other sub-overlays; no broker has this name


class Route(msgspec.Struct, frozen=True, array_like=True):
    """How a publication is routed: the broker where it was published, and the topology as that broker knew it.

    - `flood`: send it over every link, because routing tables are not complete. `unpruned`: send it along the whole
      tree of its source, because subscriptions may still be on their way there.
    - `context`, `audience` (strategy spcf): the id of the publisher's context, and the contexts of subscribers that it
      is for (None: all). `withheld`: names of the publisher's context that were left out because no filter on the way
      uses them.
    - `round`: 0 for the first transmission, otherwise the time of a redelivery. `deliver_at`: the brokers that
      deliver it in this round; others only forward it; `ABROAD` among them stands for all other sub-overlays.
      `skip_at`: brokers that do not deliver it, because redelivery will send it to them in order. `clients`: deliver
      it only to the durable subscriptions of these clients, which have moved away from a broker that is gone.
    """

    source: str = ""
    digest: str = ""
    flood: bool = False
    unpruned: bool = False
    context: bytes = b""
    audience: Bloom | None = None
    withheld: tuple[str, ...] = ()
    round: int = 0
    deliver_at: tuple[str, ...] = ()
    skip_at: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()

    def is_delivered_at(self, broker: str) -> bool:
        """Whether a broker delivers the publication to its clients in this round."""
        return (not self.deliver_at or broker in self.deliver_at) and broker not in self.skip_at


Version = tuple[int, int]


class Provenance(msgspec.Struct, frozen=True, array_like=True):
    """Where a filter or context comes from: the broker of its client, its version and the topology digest.

    A version is the client's session and a number of its broker; the newest version wins. A message under the digest of
    another topology is ignored, because its sender sends it again. `scoped`: the subscription is matched with its
    subscriber's context, which was sent before it. `context` is the id of the subscriber's context (strategy spcf).
    """

    origin: str
    version: Version
    digest: str
    scoped: bool = False
    context: bytes = b""


class ForwardingHeader(msgspec.Struct, frozen=True):
    """What happened to a publication at earlier brokers.

    `common` are the changes for every subscription behind the link, `own` those for single subscriptions by id.
    `policy` is the attached policy, after the ingress broker has let it inherit rules. `meta` marks a meta-event: its
    handling publishes no further meta-events.
    """

    policy: str | None = None
    meta: bool = False
    common: CopyChanges = PLAIN
    own: dict[str, CopyChanges] = {}
    route: Route = Route()


NEW = ForwardingHeader()
META = ForwardingHeader(meta=True)


class RuleSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One policy rule as stored with a pending decision: its text, its number in the policy and its source."""

    policy: str
    number: int
    kind: str
    id: str
    owner: str
    content: str | None = None
    governs: bool = False
    operators: bool = False


def rule_snapshot(ruling: Ruling) -> RuleSnapshot:
    """Return a rule as a `RuleSnapshot` for storing."""
    rule, source = ruling
    content = None if source.filter is None else str(source.filter)
    text = str(Policy((rule.rule,)))
    return RuleSnapshot(
        text, rule.number, source.kind, source.id, source.owner, content, source.governs, source.operators
    )


def rule_of_snapshot(snapshot: RuleSnapshot) -> Ruling:
    """Return the rule of a snapshot, compiled. Raises `PolicyError` if this process lacks an element that it uses."""
    (rule,) = Policy.parse(snapshot.policy).rules
    content = None if snapshot.content is None else Filter.parse(snapshot.content)
    names = frozenset[str]() if content is None else content.names
    source = RuleSource(
        snapshot.kind, snapshot.id, snapshot.owner, content, names, snapshot.governs, snapshot.operators
    )
    return compile_rule(rule, snapshot.number), source
