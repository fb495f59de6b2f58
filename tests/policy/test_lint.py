"""What can be seen when a policy is set, and what must not be claimed."""

import pytest
from hypothesis import given

from tests.policy.strategies import policies
from tests.sizes import examples
from tidings import Policy
from tidings.policy.lint import findings

S, A, B = "StrictMatch()", "AuthenticateSender(A)", "AuthenticateSender(B)"
LOAD = "BrokerLoadIndex()"


def said(body: str, on: str = "Publication") -> list[str]:
    return [str(one) for one in findings(Policy.parse(f"PolicyStatement {{ On({on}) {{ {body} }} }}"))]


def branches(*conditions: str) -> list[str]:
    clauses = [f"{'Elseif' if n else 'If'} {{{one}}} Then {{Log({n})}}" for n, one in enumerate(conditions)]
    return said(" ".join(clauses))


NEVER = [
    (["", S], 2, "branch 1 is always true"),
    ([S, "", A], 3, "branch 2 is always true"),
    ([S, S], 2, f"branch 1 {S} takes every such message"),
    ([S, A, f"{S} && {A}"], 3, f"branch 1 {S} takes every such message"),
    ([f"{S} || {A}", A], 2, f"branch 1 {S} || {A} takes every such message"),
    ([f"{S} || {A}", f"{A} || {S}"], 2, f"branch 1 {S} || {A} takes every such message"),
    ([f"{S} || {A}", f"({S} || {A}) && {B}"], 2, f"branch 1 {S} || {A} takes every such message"),
    ([f"{LOAD} > 0.5", f"{LOAD} > 0.7"], 2, f"branch 1 {LOAD} > 0.5 takes every such message"),
    ([f"{LOAD} >= 0.5", f"{LOAD} > 0.5"], 2, f"branch 1 {LOAD} >= 0.5 takes every such message"),
    ([f"{LOAD} < 0.5", f"{LOAD} = 0.2"], 2, f"branch 1 {LOAD} < 0.5 takes every such message"),
    ([f"{LOAD} in [1, 2, 3]", f"{LOAD} in [1, 2.0]"], 2, f"branch 1 {LOAD} in [1, 2, 3] takes every such message"),
    ([f"{LOAD} != 1", f"{LOAD} = 2"], 2, f"branch 1 {LOAD} != 1 takes every such message"),
    ([f"{LOAD} > 0.8 && {LOAD} < 0.5"], 1, f"{LOAD} > 0.8 and {LOAD} < 0.5 exclude each other"),
    ([f"{LOAD} > 0.5 && {LOAD} <= 0.5"], 1, f"{LOAD} > 0.5 and {LOAD} <= 0.5 exclude each other"),
    ([f"{S} && {S} = False"], 1, f"{S} and {S} = False exclude each other"),
    ([f"{LOAD} = 1 && {LOAD} != 1.0"], 1, f"{LOAD} = 1 and {LOAD} != 1.0 exclude each other"),
    (["ZoneName() = a && ZoneName() in [b, c]"], 1, "ZoneName() = a and ZoneName() in [b, c] exclude each other"),
    (["ZoneName() > m && ZoneName() = a"], 1, "ZoneName() > m and ZoneName() = a exclude each other"),
    ([f"{S} && ({LOAD} > 2 && {LOAD} < 1 || {A} && {A} = False)"], 1, f"{LOAD} > 2 and {LOAD} < 1 exclude each other"),
    (["ZoneName() in []"], 1, "ZoneName() in [] has nothing to choose from"),
]


@pytest.mark.parametrize(("conditions", "branch", "why"), NEVER)
def test_branches_that_never_apply(conditions: list[str], branch: int, why: str) -> None:
    assert branches(*conditions) == [f"warning: rule 1, branch {branch}: never applies: {why}"]


@pytest.mark.parametrize(
    "conditions",
    [
        [S, A, ""],
        [f"{S} && {A}", S],
        [f"{LOAD} > 0.7", f"{LOAD} > 0.5"],
        [f"{LOAD} > 0.5", f"{LOAD} >= 0.5"],
        [f"{LOAD} >= 0.5 && {LOAD} <= 0.5"],
        [f"{LOAD} = 1", f"{LOAD} in [1, 2]"],
        [f"{A} && {B}"],
        ["ZoneName() = $Broker && ZoneName() = $Sender"],
        ["ZoneName() = $Broker && ZoneName() = a"],
        ["Setting(a) > 3 && Setting(a) < b"],
        ["Setting(a) = 1", "Setting(a) = True"],
    ],
)
def test_branches_that_may_apply(conditions: list[str]) -> None:
    assert branches(*conditions) == []


@pytest.mark.parametrize(
    ("actions", "finding"),
    [
        (
            "RemoveAttributes(a), KeepOnlyAttributes(a, b)",
            ("warning: rule 1, branch 1: a is kept and removed; what is removed is gone"),
        ),
        (
            "RemoveAttributes(c), KeepOnlyAttributes(a)",
            "note: rule 1, branch 1: KeepOnlyAttributes takes c away already",
        ),
        (
            "KeepOnlyAttributes(a), KeepOnlyAttributes(b)",
            ("warning: rule 1, branch 1: the lists of KeepOnlyAttributes have nothing in common, so nothing is left"),
        ),
        ("ToXML(), ToJSON()", "warning: rule 1, branch 1: ToXML() leaves ToJSON nothing to convert"),
        ("ToXML(), ToXML()", "warning: rule 1, branch 1: ToXML() is there twice"),
        (
            "BlockMessage(), ToXML()",
            ("warning: rule 1, branch 1: BlockMessage() comes first, which leaves ToXML nothing to do"),
        ),
        (
            "FloodMessage(), BlockMessage()",
            ("warning: rule 1, branch 1: BlockMessage() comes first, which leaves FloodMessage nothing to do"),
        ),
        (
            "ToXML(), TrimAttributes()",
            ("note: rule 1, branch 1: ToXML() stands before TrimAttributes() but is carried out after it"),
        ),
    ],
)
def test_actions_that_undo_each_other(actions: str, finding: str) -> None:
    assert said(f"Then {{{actions}}}") == [finding]


def test_everything_kept_is_removed() -> None:
    assert said("Then {KeepOnlyAttributes(a), RemoveAttributes(a)}") == [
        "warning: rule 1, branch 1: a is kept and removed; what is removed is gone",
        "warning: rule 1, branch 1: everything that KeepOnlyAttributes keeps is removed, so nothing is left",
    ]


@pytest.mark.parametrize("actions", ["TrimAttributes(), ToXML()", "BlockMessage(), Log(), Publish('[a,b]')"])
def test_actions_that_go_together(actions: str) -> None:
    assert said(f"Then {{{actions}}}") == []


def test_rules_that_do_nothing() -> None:
    assert said("Then {Log()}", "Insert, Publication") == [
        "warning: rule 1: publications are never inserted, so the rule never fires"
    ]
    assert said("If {StrictMatch()} Then {}") == ["warning: rule 1: no branch has an action, so the rule does nothing"]


def test_branches_of_exceptions_are_counted_on() -> None:
    text = "If {} Then {Log()} OnException { If {} Then {Log()} Elseif {} Then {Log()} }"
    assert said(text) == ["warning: rule 1, branch 3: never applies: branch 2 is always true"]


def rules(*bodies: str) -> list[str]:
    return [str(one) for one in findings(Policy.parse(f"PolicyStatement {{ {' '.join(bodies)} }}"))]


def test_rules_that_get_in_each_others_way() -> None:
    block, trim = "On(Publication) { Then {BlockMessage()} }", "On(Publication) { @broker: Egress Then {ToXML()} }"
    assert rules(trim, block) == ["warning: rule 1: rule 2 blocks every such message"]
    assert rules(block, block) == ["warning: rule 2: the same as rule 1"]
    assert rules(trim, "On(Subscription) { Then {BlockMessage()} }") == []
    assert rules(trim, "On(Publication) { @broker: Ingress Then {BlockMessage()} }") == []


def test_what_is_not_stored_may_still_be_sent_on() -> None:
    uninsert = "On(Insert, Subscription) { @broker: Ingress Then {UninsertMessage()} }"
    assert rules(uninsert) == [
        (
            "note: rule 1: keeps the subscription out of the tables, but no rule blocks it: it is still sent on; "
            "add On(Forward, Subscription) with BlockMessage()"
        )
    ]
    assert rules(uninsert, "On(Subscription) { @broker: Ingress Then {BlockMessage()} }") == []


@examples(64, 3_000)
@given(policies)
def test_findings_name_places_that_exist(policy: Policy) -> None:
    for one in findings(policy):
        rule = policy.rules[one.rule - 1]
        assert one.branch is None or 1 <= one.branch <= len(rule.branches) + len(rule.on_exception)
        assert str(one)


def test_deep_conditions_cost_little() -> None:
    first = second = "StrictMatch()"
    for n in range(14):
        first = f"(AuthenticateSender(a{n}) && ({first} || AuthenticateSender(b{n})) || StrictMatch() && {A})"
        second = f"(AuthenticateSender(c{n}) && ({second} || AuthenticateSender(d{n})) || StrictMatch() && {B})"
    assert branches(first, second, f"{first} && {second}") == [
        line for line in branches(first, second, f"{first} && {second}") if "branch 3" in line
    ]
