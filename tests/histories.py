"""Histories: operations as clients, publishers and an operator might give them, with policies of every kind.

Names, filters and elements are few, so that rules meet, clash and fail often.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from tidings.engine.operations import (
    Advertise,
    Define,
    DelegateContext,
    Disconnect,
    Operation,
    Publish,
    SetContext,
    SetLoad,
    SetPolicy,
    Subscribe,
    Trust,
    Unadvertise,
    Unsubscribe,
)
from tidings.filters import ContextFilter, Filter
from tidings.model.advertisement import Advertisement
from tidings.model.event import Event
from tidings.model.expression import Constant
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_INTEGER
from tidings.model.schema import AttributeFilter, Schema
from tidings.model.subscription import Subscription
from tidings.model.values import Context
from tidings.policy import registry
from tidings.policy.ast import (
    ALL_POINTS,
    TRUE,
    Attach,
    Branch,
    Condition,
    ElementCall,
    ElementComparison,
    Matching,
    MessageType,
    Point,
    PublishTemplate,
    Rule,
    RuleOperation,
    Values,
    Variable,
    all_of,
    any_of,
)
from tidings.policy.policy import Policy
from tidings.policy.registry import policy_action, policy_condition

BROKER = "hub"
CLIENTS = ["ann", "bob", "cyd"]
EVERYONE = [*CLIENTS, BROKER]
GROUPS = ["g1", "g2"]
SCHEMA = Schema("S", {"a": int, "b": float, "class": str})
LARGE = 48  # bytes: what the broker of these histories calls a large message
_FILTERS = [
    *("", "", "a >= 0", "a < 3", "a > 1", "a = 1 and b = 2", "class = 'x'", "class in ('x', 'y') and a < 3"),
    *("b is null", "a >= 0 and class = 'x'", "$payload rlike 'y'", "a >= 0 and $payload like '%t'"),
    *("class like 'Policy%'", "class = 'DropMessage'", "class = 'PolicyException'", "class is not null", "not (a = 2)"),
]
_CONTEXT_FILTERS = ["x > 1", "x > this.x", "role = 'r'", "x between this.x - 1 and this.x + 1"]
_values = st.one_of(st.integers(0, 3), st.sampled_from([0.5, 1.0, 2.0, "x", "y", "a long text that counts", True]))
attributes = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), _values, max_size=4)
_often = st.sampled_from([True, True, True, False])
columnar = st.fixed_dictionaries(  # one kind a name, as columns have it
    {
        "a": _often.flatmap(lambda there: st.integers(0, 3) if there else st.none()),
        "b": _often.flatmap(lambda there: st.sampled_from([0.5, 2.0, 7.25]) if there else st.none()),
        "c": st.sampled_from([None, None, "x", "y", "a long text that counts"]),
        "class": st.sampled_from([None, "x", "x", "y", "z", "x", "y", "DropMessage"]),
    }
)
_situations = {"x": st.integers(0, 3), "role": st.sampled_from(["r", "s"])}
contexts = st.fixed_dictionaries({}, optional=_situations).map(Context)
_numbers = st.one_of(st.integers(0, 3), st.sampled_from([0.5, 2.0, 1e300]))
mixed_contexts = st.fixed_dictionaries(  # and names that no filter asks about
    {}, optional={"x": _numbers, "role": st.sampled_from(["r", "s", 1, True]), "mood": st.sampled_from(["m", 1])}
).map(Context)


@contextmanager
def own_elements() -> Iterator[None]:
    """Elements of one's own, as an application would register them: some raise, some of the time."""

    @policy_condition("HasB")
    def has_b(rule_context: Any) -> bool:
        return "b" in rule_context.attributes

    @policy_condition("Fussy")
    def fussy(rule_context: Any) -> bool:
        if rule_context.attributes.get("a") == 1:
            raise ValueError("not this one")
        return bool(rule_context.receiver != "bob")

    @policy_action("Stamp")
    def stamp(rule_context: Any, text: str) -> None:
        rule_context.add("stamp", f"{text} for {rule_context.receiver}")

    @policy_action("Fail")
    def fail(rule_context: Any) -> None:
        raise RuntimeError("this always fails")

    @policy_action("ToText", effect="converts", messages=["Publication"])
    def to_text(rule_context: Any) -> None:
        def convert(shaped: Any) -> bytes:
            if "a" not in shaped.attributes:
                raise KeyError("a")
            return repr(sorted(shaped.attributes.items())).encode()

        rule_context.convert(convert)

    names = ["HasB", "Fussy", "Stamp", "Fail", "ToText"]
    try:
        yield
    finally:
        for name in names:
            registry.unregister(name)


def _call(name: str, *arguments: Any) -> ElementCall:
    return ElementCall(
        name, tuple(one if isinstance(one, Variable | PublishTemplate) else Constant(one) for one in arguments)
    )


_plain_conditions: st.SearchStrategy[Condition] = st.one_of(
    st.builds(
        lambda operator, value: ElementComparison(_call("BrokerLoadIndex"), operator, Constant(value)),
        st.sampled_from([">", "<="]),
        st.sampled_from([0.25, 0.75]),
    ),
    st.builds(
        lambda operator, value: ElementComparison(_call("MessageSizeIndex"), operator, Constant(value)),
        st.sampled_from([">", "<", ">=", "!="]),
        st.sampled_from([0.25, 0.5, 1]),
    ),
    st.just(ElementComparison(_call("BrokerLoadIndex"), "in", Values((Constant(0.5), Constant(0))))),
)
_after: st.SearchStrategy[Condition] = st.sampled_from(
    [_call("StrictMatch"), ElementComparison(_call("StrictMatch"), "=", Constant(False))]
)
_asking: st.SearchStrategy[Condition] = st.sampled_from([_call("AuthenticateSender", one) for one in GROUPS])
_receiving = st.sampled_from([_call("AuthenticateReceiver", one) for one in GROUPS])
_own_conditions = st.sampled_from([_call("HasB"), _call("Fussy")])
_MESSAGE = PublishTemplate((("class", Constant("DropMessage")), ("message", Variable("Message"))))
_NEWS = PublishTemplate((("class", Constant("news")), ("of", Variable("Sender")), ("a", Constant(1))))
_shaping = [
    *(_call("RemoveAttributes", one) for one in ("a", "b", "stamp")),
    *(_call("KeepOnlyAttributes", *names) for names in (("a", "b"), ("class",))),
    *(_call(name) for name in ("AppendPrevHop", "ToXML", "ToJSON", "BlockMessage", "FloodMessage")),
    *(_call("AugmentBrokerHostInfo"), _call("AugmentBrokerLoadIndex", "attributes"), _call("AugmentBrokerLoadIndex")),
]
_telling = [_call("Publish", _MESSAGE), _call("Publish", _NEWS), _call("Log"), _call("Log", "x"), _call("Persist")]
_own_actions = [_call("Stamp", "one"), _call("Stamp", "two"), _call("Fail"), _call("ToText")]


@st.composite
def _rules(draw: st.DrawFn, message: MessageType, step: RuleOperation, where: str) -> Rule:
    on_events = message is MessageType.PUBLICATION
    matching = Matching.AFTER
    if on_events and where in ("message", "broker") and draw(st.integers(0, 3)) == 0:
        matching = Matching.BEFORE
    is_early = matching is Matching.BEFORE
    kinds: list[st.SearchStrategy[Condition]] = [_plain_conditions, _plain_conditions, _asking, _own_conditions]
    if not is_early and step is RuleOperation.FORWARD:
        kinds += [_after, _after, _receiving]
    inner = st.one_of(kinds)
    some = st.lists(inner, min_size=2, max_size=3)
    conditions = st.one_of(st.just(TRUE), st.just(TRUE), inner, some.map(all_of), some.map(any_of))
    actions = (
        [_call("BlockMessage"), *_telling] if step is RuleOperation.FORWARD else [*_telling, _call("UninsertMessage")]
    )
    if on_events:
        actions += _shaping * 2 + _own_actions + ([] if is_early else [_call("TrimAttributes")] * 5)
    if is_early:
        actions.append(_call("ForwardTo", "elsewhere"))
    if not on_events and message in (MessageType.UNSUBSCRIPTION, MessageType.UNADVERTISEMENT):
        actions = [one for one in actions if one.name != "UninsertMessage"]
    done = st.lists(st.sampled_from(actions), max_size=2).map(tuple)
    branches = st.lists(st.builds(Branch, conditions, done), min_size=1, max_size=2).map(tuple)
    inherited = where == "advertisement" and on_events
    return Rule(
        operation=step,
        message=message,
        branches=draw(branches),
        on_exception=draw(st.one_of(st.just(()), st.builds(Branch, st.just(TRUE), done).map(lambda one: (one,)))),
        matching=matching,
        points=draw(st.sampled_from([ALL_POINTS, ALL_POINTS, frozenset({Point.EGRESS}), frozenset({Point.INGRESS})])),
        attach=draw(st.sampled_from([*[Attach.NEVER] * 3, *Attach])) if inherited else Attach.NEVER,
        yield_attach=draw(st.booleans()) if where == "message" else False,
    )


@st.composite
def policies(draw: st.DrawFn, where: str) -> str:
    """The text of a policy that may stand there: with a "message", an "advertisement", a "subscription", a "broker"."""
    kinds = [(MessageType.PUBLICATION, RuleOperation.FORWARD)] * 5
    if where == "advertisement":
        kinds += [(MessageType.SUBSCRIPTION, RuleOperation.FORWARD), (MessageType.SUBSCRIPTION, RuleOperation.INSERT)]
    elif where == "subscription":
        kinds.append((MessageType.UNSUBSCRIPTION, RuleOperation.FORWARD))
    rules = [draw(_rules(*draw(st.sampled_from(kinds)), where)) for _ in range(draw(st.integers(1, 2)))]
    return str(Policy(tuple(rules)))


def _maybe(strategy: st.SearchStrategy[Any], never: int = 1) -> st.SearchStrategy[Any]:
    return st.one_of(*[st.none()] * never, strategy)


def _where(owner: str, kind: str) -> str:
    return "broker" if owner == BROKER else kind


@st.composite
def events(draw: st.DrawFn, columns: bool) -> dict[str, Any]:
    """What an event says, but for its id and its time."""
    said: dict[str, Any]
    if columns:
        said = draw(columnar)
    else:
        said = {"a": draw(st.integers(0, 3)), **draw(attributes)}
        if draw(st.booleans()):
            said["class"] = draw(st.sampled_from(["x", "y", "DropMessage", 3]))
    return {
        "attributes": {name: said[name] for name in sorted(said) if said[name] is not None},
        "publisher": draw(st.sampled_from([*CLIENTS, "ann", BROKER])),
        "subject": draw(st.sampled_from([None, None, "S", "T"])),
        "payload": draw(st.sampled_from([None, b"", b"text", b"\xff\0", b"y" * 40, b"y" * 9_000])),
        "context": draw(contexts),
        "subscribers": draw(_maybe(st.sampled_from(["x > 1", "role = 'r'", "x < this.x"]), 9)),
        "policy": draw(_maybe(policies("message"), 4)),
    }


def published(said: dict[str, Any], now: int) -> Publish:
    wanted = said["subscribers"]
    about = {**said, "subscribers": None if wanted is None else ContextFilter.parse(wanted)}
    return Publish(Event.of(about.pop("attributes"), id=uuid7(now, bytes(10)), timestamp=now, sequence=now, **about))


@st.composite
def _changes(draw: st.DrawFn) -> Operation:
    client = draw(st.sampled_from(EVERYONE))
    match draw(st.integers(0, 11)):
        case 0 | 1 | 2 | 3 | 10 | 11:
            structure = AttributeFilter(SCHEMA, {"a"}) if draw(st.integers(0, 15)) == 15 else None
            return Subscribe(
                Subscription.of(
                    Filter.parse(draw(st.sampled_from(_FILTERS))),
                    id=f"s-{draw(st.integers(1, 4))}-{client}",
                    subscriber=client,
                    subject=draw(st.sampled_from([*[None] * 9, "S"])),
                    structure=structure,
                    publishers=draw(_maybe(st.sampled_from(_CONTEXT_FILTERS).map(ContextFilter.parse), 6)),
                    policy=draw(_maybe(policies(_where(client, "subscription")))),
                    durable=draw(st.sampled_from([None, None, "d"])),
                    notify=draw(st.sampled_from(["subscription", "subscription", "subscription", "client"])),
                )
            )
        case 4:
            policy = draw(_maybe(policies(_where(client, "advertisement"))))
            content = Filter.parse(draw(st.sampled_from(_FILTERS)))
            name = f"a-{draw(st.integers(1, 2))}-{client}"
            return Advertise(Advertisement.of(content, id=name, publisher=client, policy=policy))
        case 5:
            return SetContext(client, draw(contexts))
        case 6:
            kind = draw(st.sampled_from(["s", "a"]))
            owner, word = draw(st.sampled_from(EVERYONE)), "subscription" if kind == "s" else "advertisement"
            by = draw(st.sampled_from([owner, BROKER]))
            policy = draw(_maybe(policies(_where(by, word))))
            return SetPolicy(by, f"{kind}-{draw(st.integers(1, 2))}-{owner}", policy)
        case 7:
            return SetLoad(draw(st.sampled_from([0.0, 0.5, 1.0])))
        case 8:
            return Unsubscribe(client, f"s-{draw(st.integers(1, 3))}-{client}")
        case _:
            others: list[Operation] = [Unadvertise(client, f"a-1-{client}"), Disconnect(client), Define(client, SCHEMA)]
            others.append(DelegateContext(client, draw(st.sampled_from(CLIENTS)), draw(st.booleans())))
            return draw(st.sampled_from(others))


def _movements(columns: bool) -> st.SearchStrategy[Operation]:
    by = st.sampled_from([None, None, None, None, "ann", "bob"])
    return st.builds(SetContext, st.sampled_from(EVERYONE), contexts if columns else mixed_contexts, by)


@st.composite
def histories(
    draw: st.DrawFn, *, columns: bool = False, answered: bool = True, blocks: int = 6, moving: bool = False
) -> list[tuple[int, Operation]]:
    """Operations with their times. With `columns` each attribute is of one kind; with `answered` all questions are;
    `moving`, contexts change between events most of the time."""
    operations: list[Operation] = []
    for party in EVERYONE:
        for group in GROUPS:
            until = MAX_INTEGER if answered else draw(st.sampled_from([0, 0, 12, MAX_INTEGER]))
            if until:
                operations.append(Trust(party, group, draw(st.booleans()), until))
    said: list[Operation | dict[str, Any]] = list(operations)
    for _ in range(draw(st.integers(2, blocks))):
        said += draw(st.lists(_changes(), min_size=1, max_size=5))
        if moving:
            said += draw(st.lists(st.one_of(_movements(columns), events(columns)), min_size=1, max_size=12))
        else:
            said += draw(st.lists(events(columns), min_size=1, max_size=6))
    return [(now, published(one, now) if isinstance(one, dict) else one) for now, one in enumerate(said, 1)]
