"""Every built-in condition and action of policies has what docs/contributing/specifications.md asks of one."""

import re
from pathlib import Path

import pytest

from tests.differential.test_batch import columns_table
from tidings.engine import Engine, Settings
from tidings.engine.batch import publication_run
from tidings.engine.operations import Publish, SetLoad, SetPolicy, Subscribe, Trust
from tidings.filters import Filter
from tidings.model.errors import PolicyError
from tidings.model.event import Event
from tidings.model.identity import uuid7
from tidings.model.limits import MAX_POLICY_ARGUMENTS
from tidings.model.subscription import Subscription
from tidings.model.values import Attributes
from tidings.policy.ast import Matching, MessageType, RuleOperation, calls_in
from tidings.policy.elements import BUILT_IN, ActionEffect, ArgumentKind, Element, ElementRole, Parameter
from tidings.policy.evaluation.actions import compile_action
from tidings.policy.evaluation.conditions import compile_condition
from tidings.policy.evaluation.evaluation import MessageFacts, RuleContext, RuleOutcome, RuleSource
from tidings.policy.policy import Policy

NAMES = Path(__file__).parents[1] / "compatibility" / "names" / "policy.txt"
ARGUMENTS = {
    ArgumentKind.BOOLEAN: "True",
    ArgumentKind.NUMBER: "1",
    ArgumentKind.STRING: "G",
    ArgumentKind.NAME: "a",
    ArgumentKind.VALUE: "1",
    ArgumentKind.LIST: "[a]",
    ArgumentKind.PUBLICATION: '"[class,Alarm],[n,1]"',
}
EVENTS: list[dict[str, object]] = [{"a": 1}, {"a": 2, "c": "x"}, {"c": "x"}, {"a": 3, "b": 0.5, "c": "x" * 900}]
OTHER_KIND = {kind: "[a]" if kind is not ArgumentKind.LIST else "1" for kind in ArgumentKind}
every_element = pytest.mark.parametrize("element", BUILT_IN, ids=lambda element: element.name)


@pytest.fixture(autouse=True)
def _batches_are_not_handled_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_run, "MAX_SINGLE_ROWS", 0)


def argument(parameter: Parameter) -> str:
    return parameter.choices[0] if parameter.choices else ARGUMENTS[parameter.kind]


def required(element: Element) -> list[Parameter]:
    return [parameter for parameter in element.parameters if not parameter.optional]


def rule(element: Element, arguments: list[str] | None = None, *, on: str = "", matching: str = "") -> str:
    """Return the text of a rule with the element: where it may stand, and with all arguments, unless said otherwise."""
    given = [argument(parameter) for parameter in element.parameters] if arguments is None else arguments
    call = f"{element.name}({', '.join(given)})"
    if element.gives is ArgumentKind.NUMBER:
        call += " > 0.5"
    elif element.gives not in (None, ArgumentKind.BOOLEAN):
        call += f" = {ARGUMENTS[element.gives]}"
    condition, actions = (call, "BlockMessage()") if element.role is ElementRole.CONDITION else ("", call)
    on = on or f"{first(RuleOperation, element.operations)}, {first(MessageType, element.messages)}"
    matching = matching or str(first(Matching, element.matching))
    return f"PolicyStatement {{ On({on}) {{ @matching: {matching} If {{{condition}}} Then {{{actions}}} }} }}"


def first(kind: type[RuleOperation] | type[MessageType] | type[Matching], allowed: frozenset[str]) -> str:
    preferred = [RuleOperation.FORWARD, MessageType.PUBLICATION, Matching.AFTER]
    return next((member for member in preferred if member in allowed), None) or next(m for m in kind if m in allowed)


def refusal(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        Policy.parse(text)
    return str(caught.value)


@every_element
def test_an_element_is_declared_whole(element: Element) -> None:
    assert re.fullmatch("([A-Z][a-z]*)+", element.name.replace("XML", "Xml").replace("JSON", "Json"))
    assert element.summary
    assert not element.summary.endswith(".")
    assert len(element.summary) <= 100
    assert (element.gives is None) is (element.role is ElementRole.ACTION)
    assert (element.effect is None) is (element.role is ElementRole.CONDITION)
    assert element.function is None, "built-in elements are implemented in policy/evaluation"
    assert element.operations
    assert element.messages
    assert element.matching


@every_element
def test_parameters_are_required_first_and_optional_later(element: Element) -> None:
    optional = [parameter.optional for parameter in element.parameters]
    assert optional == sorted(optional)
    for parameter in element.parameters:
        assert parameter.name.isidentifier()
        assert parameter.name.islower()
        assert parameter.default is None or parameter.optional
        assert parameter.default is not None or not parameter.optional or parameter.many
        assert not parameter.choices or parameter.kind is ArgumentKind.STRING
        assert not parameter.many or parameter is element.parameters[-1]


@every_element
def test_the_place_of_an_element_follows_from_what_it_needs(element: Element) -> None:
    if element.needs_receiver:
        assert element.operations == {RuleOperation.FORWARD}
    if element.needs_receiver or element.needs_filter:
        assert element.matching == {Matching.AFTER}, "before matching there is neither receiver nor filter"
    assert element.needs_filter or not element.needs_subscription
    if element.effect in (ActionEffect.ADDS, ActionEffect.CONVERTS):
        assert element.messages == {MessageType.PUBLICATION}, "only publications have attributes and a payload"
    if element.effect is ActionEffect.REPORTS:
        assert element.operations == set(RuleOperation), "an action without an effect on the message stands anywhere"


@every_element
def test_a_policy_with_the_element_reads_back_from_its_text_and_its_xml(element: Element) -> None:
    policy = Policy.parse(rule(element))
    assert element.name in str(policy)
    assert Policy.parse(str(policy)) == policy
    assert Policy.from_xml(policy.to_xml()) == policy


@every_element
def test_a_wrong_call_is_refused_with_the_way_to_call_it(element: Element) -> None:
    needed = [argument(parameter) for parameter in required(element)]
    if needed:
        assert f"needs an argument: {element.signature}" in refusal(rule(element, []))
    if not any(parameter.many for parameter in element.parameters):
        surplus = [*(argument(parameter) for parameter in element.parameters), "1"]
        text = refusal(rule(element, surplus))
        assert f": {element.signature}" in text or f"the event of {element.name}" in text
    else:
        assert "MAX_POLICY_ARGUMENTS" in refusal(rule(element, ["a"] * (MAX_POLICY_ARGUMENTS + 1)))
    for place, parameter in enumerate(element.parameters):
        wrong = [argument(other) for other in element.parameters]
        wrong[place] = f"[{OTHER_KIND[parameter.kind]}, [a]]" if parameter.many else OTHER_KIND[parameter.kind]
        assert refusal(rule(element, wrong))
        if parameter.choices:
            wrong[place] = "elsewhere"
            assert f"{element.signature} takes {' or '.join(parameter.choices)} here" in refusal(rule(element, wrong))


@every_element
def test_a_rule_in_which_the_element_cannot_stand_is_refused_by_the_name_of_the_element(element: Element) -> None:
    operation, message = (
        first(RuleOperation, element.operations),
        first(MessageType, element.messages),
    )
    for other in set(RuleOperation) - element.operations:
        assert element.name in refusal(rule(element, on=f"{other}, {first(MessageType, element.messages)}"))
    for kind in set(MessageType) - element.messages:
        assert element.name in refusal(rule(element, on=f"{operation}, {kind}"))
    for when in set(Matching) - element.matching:
        assert element.name in refusal(rule(element, on=f"{operation}, {message}", matching=when))


ON_PUBLICATIONS = [
    element
    for element in BUILT_IN
    if RuleOperation.FORWARD in element.operations and MessageType.PUBLICATION in element.messages
]


def event(number: int, attributes: dict[str, object], policy: str | None) -> Event:
    return Event(
        id=uuid7(number, bytes(10)),
        publisher="p",
        sequence=number,
        timestamp=number,
        attributes=Attributes.of(attributes),
        policy=policy,
    )


def governed(policy: str | None) -> Engine:
    """Return an engine with a policy on each of two subscriptions, and a third subscription without."""
    engine = Engine(Settings(large_message_bytes=1_000, host="here"))
    for client, content in (("c", "a > 0"), ("d", "a > 1"), ("e", "")):
        engine.handle(Subscribe(Subscription.of(Filter.parse(content), id=f"s-{client}", subscriber=client)), 0)
    for party, belongs in (("c", True), ("d", False), ("p", True)):
        engine.handle(Trust(party, "G", belongs, until=1 << 60), 0)
    engine.handle(SetLoad(0.9), 0)
    if policy is not None and "@matching: After" in policy:
        for client in ("c", "d"):
            engine.handle(SetPolicy(client, f"s-{client}", policy), 0)
    return engine


@pytest.mark.parametrize("element", ON_PUBLICATIONS, ids=lambda element: element.name)
def test_a_batch_gives_the_effects_of_events_that_are_handled_one_by_one(element: Element) -> None:
    text = rule(element)
    attached = text if element.matching == {Matching.BEFORE} else None
    events = [event(number, row, attached) for number, row in enumerate(EVENTS, 1)]
    one_by_one, together, without_policy = (governed(text if governs else None) for governs in (True, True, False))
    expected = [one_by_one.handle(Publish(published), published.timestamp) for published in events]
    assert together.batch(columns_table(events)).effects() == expected
    if element.role is ElementRole.CONDITION:
        plain = [without_policy.handle(Publish(published), published.timestamp) for published in events]
        assert expected != plain, "the condition holds for some event, and the rule blocks it"


KINDS: dict[ArgumentKind, tuple[type, ...]] = {
    ArgumentKind.BOOLEAN: (bool,),
    ArgumentKind.NUMBER: (int, float),
    ArgumentKind.STRING: (str,),
}


@every_element
def test_a_condition_gives_its_kind_and_an_action_records_in_the_outcome(element: Element) -> None:
    policy_rule = Policy.parse(rule(element)).rules[0]
    facts = MessageFacts(MessageType.PUBLICATION, "b", "here", 0.5, "p", lambda: "text", lambda: 0.25, lambda *_: True)
    attributes = Attributes.of({"a": 1, "b": 2})
    facts.attributes = attributes
    rule_context = RuleContext(facts, "c")
    if element.role is ElementRole.CONDITION:
        (call,) = calls_in(policy_rule.branches[0].condition)
        condition = compile_condition(call)
        assert condition is not None
        first_value = condition(rule_context)
        assert isinstance(first_value, KINDS[element.gives or ArgumentKind.BOOLEAN])
        assert condition(rule_context) == first_value
        return
    rule_context.outcome = RuleOutcome(1)
    before = recorded(rule_context.outcome)
    rule_context.source = RuleSource("subscription", "s", "c", Filter.parse("a > 0"), frozenset({"a"}))
    compile_action(policy_rule.branches[0].actions[0], 0)(rule_context)
    assert recorded(rule_context.outcome) != before
    assert facts.attributes is attributes
    assert attributes == {"a": 1, "b": 2}


def recorded(outcome: RuleOutcome) -> dict[str, str]:
    return {name: repr(getattr(outcome, name)) for name in RuleOutcome.__slots__}


@every_element
def test_an_element_is_on_the_list_of_names_that_users_rely_on(element: Element) -> None:
    assert re.search(rf"^{element.role} {element.name}\b", NAMES.read_text(), re.MULTILINE)
