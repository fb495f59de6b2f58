"""What cannot be read: one clear error with its place, bounded work, and nothing else ever."""

import sys
import tracemalloc
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.paper import FIG_7, FIGURES, FRAGMENTS
from tests.sizes import LONG, examples
from tidings import Policy, PolicyError
from tidings.model import limits

RULE = "PolicyStatement {\n  On(Forward, Publication) {\n    "


def rule(body: str, on: str = "Forward, Publication") -> str:
    return f"PolicyStatement {{\n  On({on}) {{\n    {body}\n  }}\n}}"


ERRORS: list[tuple[str, str, int, int]] = [
    ("", "the policy is empty; it starts with PolicyStatement {", 1, 1),
    (" // nothing", "the policy is empty; it starts with PolicyStatement {", 1, 12),
    ("Policy { }", "a policy starts with PolicyStatement {", 1, 1),
    ("PolicyStatment { }", "a policy starts with PolicyStatement {; did you mean PolicyStatement?", 1, 1),
    ("On(Publication) { Then {} }", "a policy starts with PolicyStatement {", 1, 1),
    ("PolicyStatement { }", "} is not expected here; On is missing", 1, 19),
    ("PolicyStatement On", "On is not expected here; { is missing", 1, 17),
    (rule("If {} Then {}", "Forward, Publicaton"), "Publicaton is no message; did you mean Publication?", 2, 15),
    (rule("If {} Then {}", "Foward, Publication"), "Foward is no operation; did you mean Forward?", 2, 6),
    (
        rule("If {} Then {}", "Insert"),
        ("Insert is no message; there are Advertisement, Subscription, Publication, Unsubscription, Unadvertisement"),
        2,
        6,
    ),
    (rule("If {} Then {}", "Forward Publication"), "Publication is not expected here; ) is missing", 2, 14),
    (rule(""), "a rule needs an If", 4, 3),
    (rule("@broker: Egress"), "a rule needs an If", 4, 3),
    (rule("@brokr: Egress If {} Then {}"), "there is no qualifier @brokr; did you mean @broker?", 3, 5),
    (
        rule("@color: Red If {} Then {}"),
        ("there is no qualifier @color; there are @matching, @broker, @attach and @yield_attach"),
        3,
        5,
    ),
    (rule("@broker: Egres If {} Then {}"), "Egres is no point of @broker; did you mean Egress?", 3, 14),
    (
        rule("@attach: Sometimes If {} Then {}"),
        ("Sometimes is no value of @attach; there are Never, Always, KeepExisting, IfYield"),
        3,
        14,
    ),
    (rule("@attach: Never Always If {} Then {}"), "@attach takes one value", 3, 20),
    (rule("@match: After @matching: After If {} Then {}"), "@matching is given twice", 3, 19),
    (rule("@attach: Always (Never) If {} Then {}"), "@attach takes no parentheses", 3, 22),
    (rule("@broker: (Ingress) If {} Then {}"), "a point is missing before the parenthesis", 3, 15),
    (rule("@broker Ingress If {} Then {}"), "Ingress is not expected here; : is missing", 3, 13),
    (rule("@broker: Ingress\nIff {} Then {}"), "Iff is not expected here; did you mean If?", 4, 1),
    (rule("If {} Then {} @broker: Ingress"), "qualifiers stand before the If", 3, 19),
    (rule("If {} The {}"), "The is not expected here; did you mean Then?", 3, 11),
    (rule("If {} {}"), "{ is not expected here; Then is missing", 3, 11),
    (
        rule("If {} Then {} Else {}"),
        "Else is not expected here; the other cases are written Elseif {} Then {...}",
        3,
        19,
    ),
    (rule("If {} Then {} If {} Then {}"), "If is not expected here; one of } Elseif OnException is missing", 3, 19),
    (rule("If {} Then {BlokMessage()}"), "there is no action BlokMessage; did you mean BlockMessage?", 3, 17),
    (rule("If {StrictMach()} Then {}"), "there is no condition StrictMach; did you mean StrictMatch?", 3, 9),
    (rule("If {blockmessage()} Then {}"), "there is no condition blockmessage; did you mean BlockMessage?", 3, 9),
    (rule("If {BlockMessage()} Then {}"), "BlockMessage is an action; actions stand after Then", 3, 9),
    (rule("If {} Then {StrictMatch()}"), "StrictMatch is a condition; conditions stand after If", 3, 17),
    (rule("If {} Then {BlockMessage}"), "an element is followed by parentheses, as in BlockMessage()", 3, 29),
    (rule("If {} Then {BlockMessage(1)}"), "BlockMessage takes no arguments: BlockMessage()", 3, 17),
    (
        rule("If {AuthenticateSender()} Then {}"),
        "AuthenticateSender needs an argument: AuthenticateSender(group)",
        3,
        9,
    ),
    (
        rule("If {AuthenticateSender(a, b)} Then {}"),
        ("AuthenticateSender takes 1 argument, not 2: AuthenticateSender(group)"),
        3,
        9,
    ),
    (rule("If {AuthenticateSender(5)} Then {}"), "AuthenticateSender(group) takes a word or a string here", 3, 28),
    (
        rule("If {} Then {RemoveAttributes(a, 5)}"),
        "RemoveAttributes(names...) takes the name of an attribute here",
        3,
        37,
    ),
    (
        rule("If {} Then {RemoveAttributes(a, $Message)}"),
        ("RemoveAttributes(names...) takes the name of an attribute here"),
        3,
        37,
    ),
    (
        rule("If {} Then {RemoveAttributes(a, '$x')}"),
        "the name '$x' starts with '$': such names are the system's",
        3,
        37,
    ),
    (rule("If {} Then {RemoveAttributes(a, ... ,n)}"), "... has no meaning here; a list names all its members", 3, 37),
    (rule("If {} Then {RemoveAttributes(a,)}"), ") is not expected here", 3, 36),
    (rule("If {AnyOfZones([[a]])} Then {}"), "a list holds single values, not lists", 3, 22),
    (
        rule("If {MessageSizeIndex()} Then {}"),
        ("MessageSizeIndex() is a number and needs a comparison, as in MessageSizeIndex() > 0.5"),
        3,
        9,
    ),
    (rule("If {ZoneName()} Then {}"), "ZoneName() is no truth and needs a comparison, as in ZoneName() = 'x'", 3, 9),
    (rule("If {BrokerLoadIndex() > high} Then {}"), "BrokerLoadIndex() is a number and compares with a number", 3, 29),
    (
        rule("If {BrokerLoadIndex() > $Message} Then {}"),
        "BrokerLoadIndex() is a number and compares with a number",
        3,
        29,
    ),
    (rule("If {StrictMatch() > True} Then {}"), "StrictMatch() is true or false and compares only by = and !=", 3, 25),
    (
        rule("If {BrokerLoadIndex() = [1]} Then {}"),
        ("in takes a list, as in [a, b]; the other comparisons take a single value"),
        3,
        30,
    ),
    (rule("If {BrokerLoadIndex() > } Then {}"), "a value is missing before }", 3, 29),
    (
        rule("If {1 > BrokerLoadIndex() > 0} Then {}"),
        ("a condition starts with an element, as in BrokerLoadIndex() > 0.75, not with 1"),
        3,
        9,
    ),
    (
        rule("If {BrokerLoadIndex() > 0 < 1} Then {}"),
        "comparisons do not chain; write both, with && between them",
        3,
        31,
    ),
    (
        rule("If {StrictMatch() and StrictMatch()} Then {}"),
        "and is not expected here; both must hold is written &&",
        3,
        23,
    ),
    (
        rule("If {StrictMatch() & StrictMatch()} Then {}"),
        "'&' has no meaning here; both must hold is written &&",
        3,
        23,
    ),
    (
        rule("If {!StrictMatch()} Then {}"),
        ("'!' has no meaning here; there is no negation; put the other case into an Elseif"),
        3,
        9,
    ),
    (rule("If {(StrictMatch()} Then {}"), "} is not expected here; ) is missing", 3, 23),
    (rule("If {} Then {BlockMessage(); Log()}"), "';' has no meaning here; actions are separated by commas", 3, 31),
    (rule("If {} Then {Log($Massage)}"), "there is no variable $Massage; did you mean $Message?", 3, 21),
    (rule("If {} Then {Log($Exception)}"), "$Exception is known only in OnException", 3, 17),
    (rule("If {} Then {Log('x)}"), "the string is not closed; a quote inside of a string is written twice", 3, 21),
    (
        rule("If {} Then {Log(\u2019x\u2019)}"),
        "'\u2019' has no meaning here; a typeset quote; strings stand in plain quotes",
        3,
        21,
    ),
    (
        rule("If {} Then {Log(1x)}"),
        "a number runs into what follows; a word that starts with a digit stands in quotes",
        3,
        21,
    ),
    (
        rule("If {} Then {Log(a-b)}"),
        "'-' has no meaning here; words with other letters or signs stand in quotes",
        3,
        22,
    ),
    (
        rule("If {} Then {Log(9223372036854775808)}"),
        ("the integer does not fit into 64 bits; with a decimal point it is a float"),
        3,
        21,
    ),
    (rule("If {} Then {Log(1e999)}"), "the number is too large for a float", 3, 21),
    (rule("If {} Then {Log('a\0')}"), "a control character; a policy cannot hold one", 3, 23),
    (
        rule("If {} Then {Publish(5)}"),
        'this takes an event in double quotes, as in "[class,Alarm],[message,$Message]"',
        3,
        25,
    ),
    (rule('If {} Then {Publish("class,X")}'), "an event is written [name,value],[name,value]", 3, 25),
    (rule('If {} Then {Publish("[class,X")}'), "an event is written [name,value],[name,value]", 3, 34),
    (rule('If {} Then {Publish("[class,X],[class,Y]")}'), "class is given twice", 3, 37),
    (rule('If {} Then {Publish("[a,$Massage]")}'), "there is no variable $Massage; did you mean $Message?", 3, 25),
    (
        rule('If {} Then {Publish("[a,\u2019x\u2019]")}'),
        ("a typeset quote; strings inside of an event stand in plain single quotes"),
        3,
        29,
    ),
    (
        rule("If {} Then {UninsertMessage()}"),
        ("UninsertMessage() stands only in Insert rules; BlockMessage() stops a message that is sent on"),
        3,
        17,
    ),
    (
        rule("If {} Then {BlockMessage()}", "Insert, Subscription"),
        ("BlockMessage() stands only in Forward rules; UninsertMessage() keeps a message out of the tables"),
        3,
        17,
    ),
    (
        rule("If {AuthenticateReceiver(A)} Then {}", "Insert, Subscription"),
        "AuthenticateReceiver() stands only in Forward rules",
        3,
        9,
    ),
    (
        rule("If {} Then {ToXML()}", "Forward, Subscription"),
        ("ToXML() is for Publication rules; this one is On(Forward, Subscription)"),
        3,
        17,
    ),
    (rule("If {} Then {ForwardTo(b1)}"), "ForwardTo() needs @matching: Before", 3, 17),
    (rule("@matching: Before If {StrictMatch()} Then {}"), "StrictMatch() needs @matching: After", 3, 27),
    (RULE + "If {} Then {Log()}", "the policy ends too early; a } is missing", 3, 23),
    (RULE + "If {} Then {Log(", "the policy ends too early; a ) is missing", 3, 21),
    (rule("If {} Then {}") + " }", "} is not expected here; PolicyStatement is missing", 5, 3),
]


@pytest.mark.parametrize(("text", "message", "line", "column"), ERRORS, ids=[message for _, message, _, _ in ERRORS])
def test_errors_say_what_and_where(text: str, message: str, line: int, column: int) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.parse(text)
    error = caught.value
    assert (error.message, error.line, error.column) == (message, line, column)
    assert error.text == text
    assert text[error.position :].startswith(text.split("\n")[line - 1][column - 1 :])


def test_an_error_shows_the_line_and_a_caret() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.parse(rule("If {} Then {BlokMessage()}"))
    assert str(caught.value) == (
        "line 3, column 17: there is no action BlokMessage; did you mean BlockMessage?\n"
        "      If {} Then {BlokMessage()}\n"
        "                  ^"
    )


@pytest.mark.parametrize("given", [None, 5, b"PolicyStatement", ["x"]])
def test_only_text_is_read(given: Any) -> None:
    with pytest.raises(PolicyError, match="a policy is a text, not"):
        Policy.parse(given)


def test_half_a_surrogate_pair() -> None:
    with pytest.raises(PolicyError, match="half of a surrogate pair") as caught:
        Policy.parse("PolicyStatement \ud800")
    assert caught.value.position == 16


CALL = "Log(a)"
LIMITS = {
    "MAX_POLICY_CHARACTERS (": "PolicyStatement {" + " " * limits.MAX_POLICY_CHARACTERS,
    "canonical text is longer than MAX_POLICY_CHARACTERS": rule(
        "Then {" + ",".join(["Log(" + ",".join("a" * 900) + ")"] * 27) + "}"
    ),
    "MAX_POLICY_RULES": "PolicyStatement {" + "On(Publication){Then{}}" * (limits.MAX_POLICY_RULES + 1) + "}",
    "MAX_POLICY_BRANCHES": rule("If{}Then{}" + "Elseif{}Then{}" * limits.MAX_POLICY_BRANCHES),
    "MAX_POLICY_ELEMENTS": rule(f"Then {{{','.join([CALL] * (limits.MAX_POLICY_ELEMENTS + 1))}}}"),
    "MAX_POLICY_ARGUMENTS": rule(f"Then {{Log({','.join(['1'] * (limits.MAX_POLICY_ARGUMENTS + 1))})}}"),
    "MAX_POLICY_ARGUMENTS (1,024) values": rule(f"If {{AnyOfZones([{','.join(['1'] * 1_025)}])}} Then {{}}"),
    "MAX_POLICY_NESTING": rule(
        f"If {{{'(' * limits.MAX_POLICY_NESTING}StrictMatch(){')' * limits.MAX_POLICY_NESTING}}}"
    ),
    "MAX_NAME_CHARACTERS": rule(f"Then {{{'x' * (limits.MAX_NAME_CHARACTERS + 1)}()}}"),
    "MAX_STRING_CHARACTERS": rule(f"Then {{Log('{'x' * (limits.MAX_STRING_CHARACTERS + 1)}')}}"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_are_named(limit: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.parse(LIMITS[limit])
    assert limit in caught.value.message


def test_just_within_the_limits() -> None:
    policy = Policy.parse("PolicyStatement {" + "On(Publication){Then{}}" * limits.MAX_POLICY_RULES + "}")
    assert len(policy.rules) == limits.MAX_POLICY_RULES
    [branched] = Policy.parse(rule("If{}Then{}" + "Elseif{}Then{}" * (limits.MAX_POLICY_BRANCHES - 1))).rules
    assert len(branched.branches) == limits.MAX_POLICY_BRANCHES
    [busy] = Policy.parse(rule(f"Then {{{','.join([CALL] * limits.MAX_POLICY_ELEMENTS)}}}")).rules
    assert len(busy.branches[0].actions) == limits.MAX_POLICY_ELEMENTS
    [wordy] = Policy.parse(rule(f"Then {{Log({','.join(['1'] * limits.MAX_POLICY_ARGUMENTS)})}}")).rules
    assert len(wordy.branches[0].actions[0].arguments) == limits.MAX_POLICY_ARGUMENTS


def test_a_rule_that_becomes_two_counts_twice() -> None:
    half = limits.MAX_POLICY_ELEMENTS // 2 + 1
    with pytest.raises(PolicyError, match="MAX_POLICY_ELEMENTS"):
        Policy.parse(rule(f"@broker: Routing (Ingress) Then {{{','.join([CALL] * half)}}}"))


def test_deep_conditions_read_back() -> None:
    """Commas bind less than `||`, so that they need parentheses that were not written."""
    text = "StrictMatch()"
    for _ in range(limits.MAX_POLICY_NESTING // 2 - 1):
        text = f"(AuthenticateSender(a) && ({text} || StrictMatch()) || StrictMatch())"
    for condition in (text, f"{text} || StrictMatch(), StrictMatch()"):
        with suppress(PolicyError):
            policy = Policy.parse(rule(f"If {{{condition}}} Then {{}}"))
            assert Policy.parse(str(policy)) == policy
            assert Policy.from_xml(policy.to_xml()) == policy


SEEDS = [
    *FIGURES.values(),
    *(f"PolicyStatement {{ On(Publication) {{ {fragment} }} }}" for fragment in FRAGMENTS.values()),
    rule(
        "@match: Before @yield_attach: True If {(StrictMatch() || ZoneName() in [a, 'b', $Broker])} Then Log(1.5, true)"
    ),
    rule("If {} Then {} OnException { If {BrokerLoadIndex() <= .5} Then {Log($Exception), Persist(x)} }"),
]
PIECES = [
    *"'\"`()[]{},.=<>!%_\\/*#@$:;|&+-~^?0123456789eEaz \t\n\0ä€\U0001f600\ud800\u2019",
    *(
        "If",
        "Then {}",
        "Elseif",
        "On(",
        "&&",
        "||",
        "//",
        "@broker:",
        "BlockMessage()",
        "$Message",
        "in [",
        "...",
        "1e999",
    ),
]


@st.composite
def mutants(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 3))):
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 12))
        match draw(st.integers(0, 4)):
            case 0:
                text = text[:at] + draw(st.sampled_from(PIECES)) + text[at:]
            case 1:
                text = text[:at] + text[at + length :]
            case 2:
                text = text[:at] + text[at : at + length] * 2 + text[at + length :]
            case 3:
                text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + 1 :]
            case _:
                other = draw(st.sampled_from(SEEDS))
                text = text[:at] + other[draw(st.integers(0, len(other))) :]
    return text


@examples(300, 10_000)
@given(mutants())
def test_mutants_are_read_or_refused(text: str) -> None:
    try:
        policy = Policy.parse(text)
    except PolicyError as error:
        assert 0 <= error.position <= len(error.text)
        assert error.message
        assert "\n" not in error.message
        assert error.line >= 1
        assert error.column >= 1
        str(error)
    else:
        assert Policy.parse(str(policy)) == policy


@pytest.mark.parametrize(
    "unit", ["(", "{", "[", "'", "''", "a", "a(", "If", "If {", "On(", "@a:", "//", "&&", "Log(),", "$", "1", "\n", '"']
)
@pytest.mark.parametrize("head", ["", RULE + "If {", RULE + "Then {Log(", RULE + 'Then {Publish("['])
def test_hostile_texts_cost_steps_and_memory_in_proportion(head: str, unit: str) -> None:
    length = limits.MAX_POLICY_CHARACTERS if LONG else limits.MAX_POLICY_CHARACTERS // 4
    text = head + unit * ((length - len(head)) // len(unit))
    with suppress(PolicyError):
        Policy.parse(FIG_7)  # the grammar is loaded once, and not counted
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1

    tracemalloc.start()
    sys.setprofile(count)
    try:
        Policy.parse(text)
    except PolicyError:
        pass
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert calls < 200 * len(text) + 20_000
    assert peak < 1_500 * len(text) + 4_000_000
