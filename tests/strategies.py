"""What the property tests draw from: values that sit on edges, filters that the parser could have made, and events."""

from hypothesis import strategies as st

from tidings.model.expression import (
    ARITY,
    FALSE,
    NULL,
    PAYLOAD,
    PUBLISHER,
    SUBJECT,
    TRUE,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    Condition,
    Constant,
    FunctionName,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    OwnContextValue,
    Rlike,
    Topic,
    ValueExpression,
    XPath,
    all_of,
    any_of,
)
from tidings.model.limits import (
    MAX_INTEGER,
    MAX_STRING_CHARACTERS,
    MAX_TEXT_BYTES,
    MAX_XML_BYTES,
    MAX_XML_NESTING,
    MIN_INTEGER,
)

integers = st.one_of(
    st.sampled_from([0, 1, -1, 2, 3, 2**53, 2**53 + 1, -(2**53) - 1, MAX_INTEGER, MIN_INTEGER]),
    st.integers(-5, 5),
    st.integers(MIN_INTEGER, MAX_INTEGER),
)
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.0, float(2**53), float(2**63), 5e-324, 1.7976931348623157e308, 1e16]),
    st.floats(allow_nan=False, allow_infinity=False),
)
characters = st.characters(exclude_categories=["Cs"])
strings = st.one_of(
    st.sampled_from(["", "a", "b", "ab", "abc", "it's", "50%", "a_b", "\\", "ä", "\U0010ffff", "\0", "`", "AND"]),
    st.text("ab%_\\'", max_size=5),
    st.text(characters, max_size=8),
)
values = st.one_of(st.booleans(), integers, floats, strings)
names = st.one_of(
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(
        ["engine.temp", "_x1", "weird name", "and", "THIS.x", "this", "2nd", "tick`s", "größe", "distance"]
    ),
    st.text(characters, min_size=1, max_size=6).filter(lambda name: not name.startswith("$")),
)
contents = st.dictionaries(names, values, max_size=6)
system_names = st.sampled_from([SUBJECT, PUBLISHER, PAYLOAD])

# As long as the model takes them, and one more where more is allowed but not looked into.
long_strings = st.sampled_from(["a" * MAX_STRING_CHARACTERS, "é" * MAX_STRING_CHARACTERS, "ab" * 2_000 + "'%_\\\0"])
texts = st.builds(
    lambda piece, size: (piece * size)[:size].encode()[: MAX_TEXT_BYTES + 1],
    st.sampled_from(["a", "ab", "b", "é", "\0", "\U0010ffff"]),
    st.sampled_from([1, MAX_STRING_CHARACTERS, MAX_STRING_CHARACTERS + 1, MAX_TEXT_BYTES, MAX_TEXT_BYTES + 1]),
)
documents = st.sampled_from(
    [
        b"<order><item price='11'/></order>",
        b"<a><b/></a>",
        b"<a>" * (MAX_XML_NESTING + 1) + b"</a>" * (MAX_XML_NESTING + 1),
        b"<a>" * 20_000,  # nothing is closed
        b"<a " + b" ".join(b"x%d='1'" % i for i in range(2_000)) + b"/>",
        b"<a>" + b"<b/>" * 50_000 + b"</a>",
        b"<a>" + b"x" * MAX_XML_BYTES + b"</a>",
        b"<!DOCTYPE a [<!ENTITY l 'ha'><!ENTITY m '&l;&l;&l;'>]><a>&m;</a>",
        b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>",
        b"<a>&nothing;</a>",
        b"<?xml version='1.0' encoding='no-such'?><a/>",
        b"<?xml version='1.0' encoding='utf-16'?><a/>",
        b"<?xml version='9.9'?><a/>",
        "<?xml version='1.0' encoding='utf-16'?><a><b/></a>".encode("utf-16"),
        b"\xef\xbb\xbf<a><b/></a>",
        b"<a xmlns:p='u' p:b=''><p:b/><q:c/></a>",
        b"<a b='1' b='2'/>",
        b"<a>\0</a>",
        b"<a>\xff</a>",
        b"<!-- nothing else -->",
        b"<?xml-stylesheet href='x'?>",
        b"<",
        b"",
    ]
)
payloads = st.one_of(st.none(), st.sampled_from([b"ab", b"\xff"]), st.binary(max_size=8), texts, documents)

constants = st.builds(Constant, values)
like_patterns = st.lists(st.sampled_from(["a", "b", "%", "_", "\\%", "\\_", "\\\\", "'", "é"]), max_size=6).map("".join)
regexes = st.sampled_from(["a", "^a", "b$", "a.*b", "[ab]+", "(a|b)c?", "\\d", "it's", "", "(?i)A"])
topics = (
    st.lists(st.sampled_from(["", "a", "b", "*", "sport"]), min_size=2, max_size=4)
    .map("/".join)
    .flatmap(lambda stem: st.sampled_from([stem + "/#", stem + "/*"]))
)
xpaths = st.sampled_from(["/order/item[@price>10]", '//a[b="it\'s"]', "count(//x) > 2", "/a/b[last()]", "not(/a)"])


@st.composite
def value_expressions(draw: st.DrawFn, context: bool = False, depth: int = 2) -> ValueExpression:
    leaves: list[st.SearchStrategy[ValueExpression]] = [constants, st.builds(Attribute, names)]
    leaves.append(st.builds(OwnContextValue, names) if context else st.builds(Attribute, system_names))
    if depth == 0 or draw(st.integers(0, 3)) > 0:
        return draw(st.one_of(leaves))
    inner = value_expressions(context, depth - 1)
    kind = draw(st.integers(0, 2 if context else 1))
    if kind == 0:
        return Arithmetic(draw(inner), draw(st.sampled_from(["+", "-", "*", "/", "%"])), draw(inner))
    if kind == 1:
        return Negative(draw(inner))
    function: FunctionName = draw(st.sampled_from(list(ARITY)))
    return Call(function, tuple(draw(inner) for _ in range(ARITY[function])))


@st.composite
def predicates(draw: st.DrawFn, context: bool = False) -> Condition:
    value = value_expressions(context)
    match draw(st.integers(0, 8 if context else 10)):
        case 0 | 1 | 2:
            return Comparison(draw(value), draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), draw(value))
        case 3:
            return Between(draw(value), draw(value), draw(value))
        case 4:
            return In(draw(value), tuple(draw(st.lists(value, min_size=1, max_size=3))))
        case 5:
            return Like(draw(value), draw(like_patterns))
        case 6:
            return Rlike(draw(value), draw(regexes))
        case 7:
            return IsNull(draw(value))
        case 8:
            return draw(st.sampled_from([TRUE, FALSE, NULL]))
        case 9:
            return Topic(draw(topics))
        case _:
            return XPath(draw(xpaths))


def conditions(context: bool = False) -> st.SearchStrategy[Condition]:
    """Trees as the parser makes them: no AND directly below an AND, no OR below an OR."""
    return st.recursive(
        predicates(context),
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(all_of),
            st.lists(inner, min_size=2, max_size=3).map(any_of),
            st.builds(Not, inner),
        ),
        max_leaves=6,
    )
