"""The XML notation: what it looks like, what is wrong with it and in which line, and what it keeps out."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.paper import FIG_7, FIGURES
from tests.sizes import examples
from tidings import Policy, PolicyError
from tidings.model import limits


def document(inside: str, attributes: str = 'operation="Forward" message="Publication"') -> str:
    return f"<PolicyStatement>\n<On {attributes}>\n{inside}\n</On>\n</PolicyStatement>"


def branch(actions: str, conditions: str = "") -> str:
    return f"<Branch><If>{conditions}</If>\n<Then>{actions}</Then></Branch>"


def test_fig_7_in_xml() -> None:
    assert Policy.parse(FIG_7).to_xml() == (Path(__file__).parent / "fig_7.xml").read_text()


def test_what_may_be_left_out_and_put_in() -> None:
    """Defaults, a missing If, comments, blanks, and a declaration."""
    text = (
        '<?xml version="1.0" encoding="iso-8859-1"?><!-- one -->\n'
        + document(
            '<Branch> <Then> <Action name="Log"> <String>größe</String> <!-- x --> </Action></Then></Branch>',
            'message="publication"',
        )
        + "<!-- end -->"
    )
    assert Policy.from_xml(text) == Policy.parse('PolicyStatement { On(Publication) { Then {Log("größe")} } }')


def test_bytes_are_read_by_their_declaration() -> None:
    text = '<?xml version="1.0" encoding="iso-8859-1"?>' + document(
        branch('<Action name="Log"><String>ä</String></Action>')
    )
    assert Policy.from_xml(text.encode("latin-1")) == Policy.from_xml(text)


SENDER = '<Condition name="AuthenticateSender"><String>a</String></Condition>'
ERRORS: list[tuple[str, str, int]] = [
    ("", "not well-formed XML: Document is empty", 1),
    ("<PolicyStatement>\n<On>\n", "not well-formed XML: Premature end of data in tag On line 2", 3),
    ("<Policy/>", "<Policy> is not expected here; there is <PolicyStatement>", 1),
    ("<PolicyStatement/>", "a policy has at least one <On>", 1),
    ("<PolicyStatement>x</PolicyStatement>", "<PolicyStatement> holds no text of its own", 1),
    ("<PolicyStatement>\n<Rule/></PolicyStatement>", "<Rule> is not expected in <PolicyStatement>; there is <On>", 2),
    (document(branch(""), 'mesage="Publication"'), "<On> has no attribute mesage; did you mean message?", 2),
    (
        document(branch(""), 'operation="Insert"'),
        ("<On> needs the attribute message: Advertisement, Subscription, Publication, Unsubscription, Unadvertisement"),
        2,
    ),
    (document(branch(""), 'message="Publicaton"'), "'Publicaton' is no value of message; did you mean Publication?", 2),
    (
        document(branch(""), 'message="Publication" broker="Inside"'),
        ("'Inside' is no value of broker; there are Ingress, Egress, Routing"),
        2,
    ),
    (document(""), "a rule has at least one <Branch>", 2),
    (document("<Branch/>"), "a <Branch> has an <If> and a <Then>", 3),
    (document("<Branch><Then/><If/></Branch>"), "a <Branch> has an <If> and a <Then>", 3),
    (document(branch("") + "\n<OnException/>"), "an <OnException> has at least one <Branch>", 5),
    (
        document(f"<OnException>{branch('')}</OnException>\n" + branch("")),
        ("<OnException> stands once, at the end of the rule"),
        5,
    ),
    (document(branch('<Action name="BlokMessage"/>')), "there is no action BlokMessage; did you mean BlockMessage?", 4),
    (document(branch("<Action/>")), "there is no action ; there are TrimAttributes", 4),
    (document(branch('<Condition name="StrictMatch"/>')), "<Condition> is not expected in <Then>; did you mean", 4),
    (
        document(branch("", '\n<Action name="Log"/>')),
        ("<Action> is not expected here; there is <Condition>, <And>, <Or>, <Compare>"),
        4,
    ),
    (document(branch("", "<And/>")), "<And> has at least one condition", 3),
    (
        document(branch("", '<Compare operator="~"/>')),
        "'~' is no value of operator; there are =, !=, <, <=, >, >=, in",
        3,
    ),
    (document(branch("", '<Compare operator="="/>')), "<Compare> has a <Condition> and what it is compared with", 3),
    (
        document(branch("", '<Condition name="BrokerLoadIndex"/>')),
        "BrokerLoadIndex() is a number and needs a comparison",
        3,
    ),
    (
        document(branch("", '<Compare operator="="><Condition name="BrokerLoadIndex"/>\n<String>a</String></Compare>')),
        "BrokerLoadIndex() is a number and compares with a number",
        4,
    ),
    (
        document(branch('<Action name="Log"><Sting>a</Sting></Action>')),
        (
            "<Sting> is not expected here; there are <String>, "
            "<Integer>, <Number>, <Boolean>, <Variable>, <List>, <Event>"
        ),
        4,
    ),
    (document(branch('<Action name="Log">\n<Integer>x</Integer></Action>')), "'x' is no number", 5),
    (
        document(branch('<Action name="Log"><Integer>9223372036854775808</Integer></Action>')),
        ("the integer does not fit into 64 bits"),
        4,
    ),
    (document(branch('<Action name="Log"><Number>nan</Number></Action>')), "the number is too large for a float", 4),
    (document(branch('<Action name="Log"><Boolean>1</Boolean></Action>')), "'1' is no value of Boolean", 4),
    (document(branch('<Action name="Log"><String>a<b/></String></Action>')), "<String> holds text only", 4),
    (
        document(branch('<Action name="Log"><Variable>Massage</Variable></Action>')),
        ("there is no variable $Massage; did you mean $Message?"),
        4,
    ),
    (document(branch('<Action name="Publish"><Event/></Action>')), "an <Event> has at least one <Attribute>", 4),
    (
        document(branch('<Action name="Publish"><Event><Attribute name="a"/></Event></Action>')),
        ("an <Attribute> has one value, and its name only once"),
        4,
    ),
    (document(branch('<Action name="UninsertMessage"/>')), "UninsertMessage() stands only in Insert rules", 4),
    (
        document(branch('<Action name="Log"><Variable>Exception</Variable></Action>')),
        ("$Exception is known only in OnException"),
        4,
    ),
]


@pytest.mark.parametrize(("text", "message", "line"), ERRORS, ids=[message for _, message, _ in ERRORS])
def test_errors_name_the_line(text: str, message: str, line: int) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_xml(text)
    assert message in caught.value.message
    assert caught.value.line == line
    str(caught.value)


@pytest.mark.parametrize("given", [None, 5, ["x"]])
def test_only_text_is_read(given: Any) -> None:
    with pytest.raises(PolicyError, match="a policy in XML is a text, not"):
        Policy.from_xml(given)


PLAIN = document(branch('<Action name="Log"><String>&e;</String></Action>'))
BOMB = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))


@pytest.mark.parametrize(
    "prologue",
    [
        '<!DOCTYPE PolicyStatement [<!ENTITY e "harmless">]>',
        f'<!DOCTYPE PolicyStatement [<!ENTITY e0 "x">{BOMB}<!ENTITY e "&e11;">]>',
        '<!DOCTYPE PolicyStatement [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE PolicyStatement [<!ENTITY e SYSTEM "http://127.0.0.1:9/x">]>',
        '<!DOCTYPE PolicyStatement SYSTEM "http://127.0.0.1:9/x.dtd">',
        '<!DOCTYPE PolicyStatement [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]>',
        "",
    ],
)
def test_no_dtd_and_no_entity_is_read(prologue: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.from_xml(prologue + PLAIN)
    assert "DTD" in caught.value.message or "not well-formed XML" in caught.value.message
    assert "root:" not in str(caught.value)


def test_includes_are_only_elements() -> None:
    text = document(
        branch(
            '<Action name="Log"><xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="/etc/passwd"/></Action>'
        )
    )
    with pytest.raises(PolicyError, match="is not expected here"):
        Policy.from_xml(text)


@pytest.mark.parametrize("depth", [limits.MAX_POLICY_NESTING * 3, 5_000, 100_000])
@pytest.mark.parametrize("tag", ["And", "PolicyStatement"])
def test_deep_nesting_is_refused(depth: int, tag: str) -> None:
    deep = f"<{tag}>" * depth + (SENDER if tag == "And" else "") + f"</{tag}>" * depth
    with pytest.raises(PolicyError):
        Policy.from_xml(document(branch("", deep)) if tag == "And" else deep)


LIMITS = {
    "MAX_POLICY_XML_BYTES": " " * limits.MAX_POLICY_XML_BYTES + "<PolicyStatement/>",
    "MAX_POLICY_RULES": "<PolicyStatement>"
    + f'<On message="Publication">{branch("")}</On>' * (limits.MAX_POLICY_RULES + 1)
    + "</PolicyStatement>",
    "MAX_POLICY_BRANCHES": document(branch("") * (limits.MAX_POLICY_BRANCHES + 1)),
    "MAX_POLICY_ELEMENTS": document(branch('<Action name="Log"/>' * (limits.MAX_POLICY_ELEMENTS + 1))),
    "MAX_POLICY_ARGUMENTS": document(
        branch(f'<Action name="Log">{"<Integer>1</Integer>" * (limits.MAX_POLICY_ARGUMENTS + 1)}</Action>')
    ),
    "MAX_POLICY_NESTING": document(
        branch("", f"<And>{SENDER}<Or>{SENDER}" * 32 + f"<And>{SENDER}{SENDER}</And>" + "</Or></And>" * 32)
    ),
    "MAX_STRING_CHARACTERS": document(branch(f'<Action name="Log"><String>{"x" * 9_000}</String></Action>')),
    "MAX_POLICY_CHARACTERS": document(branch(f'<Action name="Log"><String>{"x" * 8_000}</String></Action>' * 9)),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_are_named(limit: str) -> None:
    with pytest.raises(PolicyError, match=limit):
        Policy.from_xml(LIMITS[limit])


SEEDS = [Policy.parse(text).to_xml() for text in FIGURES.values()]
PIECES = [
    "<",
    ">",
    "/>",
    "&",
    "&#0;",
    '"',
    "<If>",
    "</If>",
    "<And>",
    "<String>",
    "x",
    "\n",
    "<!--",
    "]]>",
    "\ud800",
    "ä",
]


@examples(300, 10_000)
@given(st.data())
def test_mutants_are_read_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SEEDS))
    for _ in range(data.draw(st.integers(1, 3))):
        at, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 12))
        put = data.draw(st.one_of(st.just(""), st.sampled_from(PIECES)))
        text = text[:at] + put + text[at + length * data.draw(st.booleans()) :]
    try:
        policy = Policy.from_xml(text)
    except PolicyError as error:
        assert 0 <= error.position <= len(error.text)
        assert error.message
        assert "\n" not in error.message
        str(error)
    else:
        assert Policy.parse(str(policy)) == policy


def test_the_largest_policies_fit_both_notations() -> None:
    """What the text holds, XML holds too, although it takes more room."""
    event = ",".join(f"[{chr(0x4E00 + n)},{chr(0x4E00 + n)}]" for n in range(1_000))
    lists = ", ".join(["Log(" + ", ".join("a" * 1_000) + ")"] * 9)
    text = f"PolicyStatement {{ On(Publication) {{ Then {{{lists}, {', '.join([f'Publish({event!r})'] * 3)}}} }} }}"
    policy = Policy.parse(text)
    assert Policy.from_xml(policy.to_xml()) == policy
    assert len(policy.to_xml().encode()) < limits.MAX_POLICY_XML_BYTES
