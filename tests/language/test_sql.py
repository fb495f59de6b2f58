"""The native language: what it reads, how it writes it back, and what it says about mistakes."""

import sys
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tests.strategies import conditions
from tidings import ContextFilter, Filter, FilterError
from tidings.language.sql import forget_templates, template_counts
from tidings.language.tokens import LiteralToken, scan, split
from tidings.model import limits
from tidings.model.expression import And, Attribute, Comparison, Condition, Constant, In, Or
from tidings.model.filter import ContextFilterValue, FilterValue


@examples(180, 2_500)
@given(conditions())
def test_canonical_text_parses_back(expression: Condition) -> None:
    text = str(FilterValue(expression))
    assert Filter.parse(text) == FilterValue(expression), text
    assert str(Filter.parse(text)) == text


@examples(120, 2_000)
@given(conditions(context=True))
def test_canonical_text_of_context_filters_parses_back(expression: Condition) -> None:
    text = str(ContextFilterValue(expression))
    assert ContextFilter.parse(text) == ContextFilterValue(expression), text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", "TRUE"),
        ("  \n ", "TRUE"),
        ("true", "TRUE"),
        ("class='report'and d1>10", "class = 'report' AND d1 > 10"),
        ("a <> 1", "a != 1"),
        ("a between 1 and 2 and b", "a BETWEEN 1 AND 2 AND b = TRUE"),
        ("not a between 1 and 2", "a NOT BETWEEN 1 AND 2"),
        ("a not in (1, 'x', true, null)", "a NOT IN (1, 'x', TRUE, NULL)"),
        ("a not like 'x%' or a not rlike 'y'", "a NOT LIKE 'x%' OR a NOT RLIKE 'y'"),
        ("a is not null", "a IS NOT NULL"),
        ("not not a", "NOT NOT a = TRUE"),
        ("a = 1 or b = 2 and c = 3", "a = 1 OR b = 2 AND c = 3"),
        ("(a = 1 or b = 2) and c = 3", "(a = 1 OR b = 2) AND c = 3"),
        ("a = 1 and (b = 2 and (c = 3))", "a = 1 AND b = 2 AND c = 3"),
        ("a - (b - c) = (a - b) - c", "a - (b - c) = a - b - c"),
        ("a*b+c/d%e > -f", "a * b + c / d % e > -f"),
        ("this.x-20 < x", None),
        ("a-20 > - 5 and a > +5 and a > -(5)", "a - 20 > -5 AND a > 5 AND a > -(5)"),
        ("x > 1e3 and x > .5 and x > 5.", "x > 1000.0 AND x > 0.5 AND x > 5.0"),
        ("x >= -9223372036854775808", "x >= -9223372036854775808"),
        ("`and` = 1 and `two words` = 2 and `a``b` = 3", "`and` = 1 AND `two words` = 2 AND `a``b` = 3"),
        ("`plain` = 1", "plain = 1"),
        ("`this.x` = 1", "`this.x` = 1"),
        ("s = 'it''s' and t = ''", "s = 'it''s' AND t = ''"),
        ("$subject = '/a' and $publisher like 'cam%'", "$subject = '/a' AND $publisher LIKE 'cam%'"),
        ("topic('/a/b')", "$subject = '/a/b'"),
        ("TOPIC('/a/*') and xpath('/a')", "topic('/a/*') AND xpath('/a')"),
        ("topic = 1 and distance > 2", "topic = 1 AND distance > 2"),
        ("engine.temp > 90", "engine.temp > 90"),
    ],
)
def test_what_is_read_and_how_it_is_written(text: str, canonical: str | None) -> None:
    if canonical is None:
        assert str(ContextFilter.parse(text)) == "this.x - 20 < x"
    else:
        assert str(Filter.parse(text)) == canonical


def test_one_true_and_one_point_nought_are_three_filters() -> None:
    assert len({Filter.parse("a = 1"), Filter.parse("a = TRUE"), Filter.parse("a = 1.0")}) == 3
    assert Filter.parse("a = 1") == Filter.parse("A = 1".replace("A", "a"))
    assert Filter.parse("a = 1") != ContextFilter.parse("a = 1")


@pytest.mark.parametrize(
    ("text", "position", "complaint"),
    [
        ("price betwen 1 and 2", 6, "did you mean BETWEEN?"),
        ("a = 1 adn b = 2", 6, "did you mean AND?"),
        ("a = 1 b = 2", 6, "AND or OR may be missing"),
        ("a =", 3, "ends too early; a value or a condition is missing"),
        ("(a = 1", 6, "a closing parenthesis is missing"),
        ("a = 1)", 5, "is not expected here"),
        ("a == 1", 2, "equality is a single ="),
        ("a = 1 && b = 2", 6, "the word is AND"),
        ("a = 1 || b = 2", 6, "the word is OR"),
        ("! a", 0, "the word is NOT"),
        ('a = "x"', 4, "strings stand in single quotes"),
        ("größe = 3", 2, "backquotes"),
        ("a = 'x", 4, "the string is not closed"),
        ("`a = 1", 0, "the name in backquotes is not closed"),
        ("`` = 1", 0, "a name is not empty"),
        ("`$x` = 1", 0, "only the system's start with"),
        ("a < b < c", 6, "comparisons do not chain"),
        ("a like b", 7, "a pattern in single quotes"),
        ("a like 'x\\y'", 7, "a backslash stands before"),
        ("a rlike '(?=x)'", 8, "RE2"),
        ("a rlike '('", 8, "RE2"),
        ("a = 9223372036854775808", 4, "does not fit into 64 bits"),
        ("a = 1e400", 4, "too large for a float"),
        ("a = 5x", 4, "a number runs into what follows"),
        ("a = 1 and 3", 10, "a condition is needed here"),
        ("'x'", 0, "a condition is needed here"),
        ("a + 1", 0, "a condition is needed here"),
        ("(a = 1) = 2", 0, "a value is needed here"),
        ("a in ()", 6, "a value is missing before"),
        ("a in (1, 2", 10, "closing parenthesis"),
        ("a is 3", 5, "3 is not expected here"),
        ("this.x = 1", 0, "only in context filters"),
        ("this = 1", 0, "this needs a name"),
        ("distance(1, 2, 3, 4) < 5", 0, "only in context filters"),
        ("topi('/a')", 0, "did you mean topic?"),
        ("a = 1 and $subject", 10, "$subject is a string and needs a comparison"),
        ("a = +'x'", 4, "+ stands before numbers"),
        ("topic(a)", 0, "takes one quoted string"),
        ("topic('/a/#/b')", 6, "# stands only at the end"),
        ("xpath('//a//b')", 6, "only at the start of a path"),
        ("a = 1 -- c", 6, "there are no comments"),
        ("+a = 1", 0, "+ stands before numbers"),
        ("a = 'x'" + " or a like 'x%'" * 65, 0, "MAX_FILTER_PATTERNS"),
        ("$subjct = 'x'", 0, "did you mean $subject?"),
        ("$nothing = 'x'", 0, "there are $subject, $payload, $publisher"),
        ("[class,eq,'x']", 0, "'padres'"),
        ("a = 1; b = 2", 5, "a single condition"),
    ],
)
def test_mistakes_are_told_with_place_and_hint(text: str, position: int, complaint: str) -> None:
    with pytest.raises(FilterError) as refused:
        Filter.parse(text)
    assert complaint in refused.value.message
    assert (refused.value.position, refused.value.text) == (position, text)
    assert str(refused.value).splitlines()[-1] == "  " + " " * position + "^"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("distance(x, y, this.x) < 5", "distance takes 4 values, not 3"),
        ("distanc(x, y, this.x, this.y) < 5", "did you mean distance?"),
        ("$subject = 'a'", "belongs to the event"),
        ("topic('/a')", "looks at the event"),
        ("this.`` = 1", "a name is not empty"),
        ("distance(a = 1, 2, 3, 4) < 5", "is not expected here"),
    ],
)
def test_mistakes_in_context_filters(text: str, complaint: str) -> None:
    with pytest.raises(FilterError) as refused:
        ContextFilter.parse(text)
    assert complaint in refused.value.message


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("(" * 65 + "a" + ")" * 65, "MAX_FILTER_NESTING"),
        ("not " * 70 + "a", "MAX_FILTER_NESTING"),
        ("- " * 70 + "a > 1", "MAX_FILTER_NESTING"),
        ("a" + " + a" * 70 + " > 1", "MAX_FILTER_NESTING"),
        ("a = 1" + " or a = 1" * limits.MAX_FILTER_PREDICATES, "MAX_FILTER_PREDICATES"),
        ("a in (1" + ",1" * limits.MAX_IN_VALUES + ")", "MAX_IN_VALUES"),
        ("a like '" + "x" * 2_000 + "'", "MAX_PATTERN_CHARACTERS"),
        ("x" * 300 + " = 1", "MAX_NAME_CHARACTERS"),
        ("a = '" + "x" * 70_000 + "'", "MAX_FILTER_CHARACTERS"),
    ],
)
def test_limits_are_named(text: str, limit: str) -> None:
    with pytest.raises(FilterError, match=limit):
        Filter.parse(text)
    assert hasattr(limits, limit)


def test_what_is_just_within_the_limits_is_read() -> None:
    nesting, count, predicates = limits.MAX_FILTER_NESTING, limits.MAX_IN_VALUES, limits.MAX_FILTER_PREDICATES
    assert Filter.parse("(" * nesting + "a" + ")" * nesting) == Filter.parse("a")
    listed = Filter.parse(f"a in ({', '.join(map(str, range(count)))})").expression
    assert isinstance(listed, In)
    assert len(listed.options) == count
    either = Filter.parse(" or ".join(f"a = {number}" for number in range(predicates))).expression
    assert isinstance(either, Or)
    assert len(either.parts) == predicates


def test_a_name_is_as_long_as_itself_not_as_its_quoting() -> None:
    longest = "x" * 253 + " y"
    assert len(longest) == limits.MAX_NAME_CHARACTERS
    assert Filter.parse(f"`{longest}` = 1").names == {longest}
    assert ContextFilter.parse(f"this.{'x' * 255} = 1").own_names == {"x" * 255}
    with pytest.raises(FilterError, match="MAX_NAME_CHARACTERS"):
        Filter.parse(f"`{longest}z` = 1")


def test_what_could_not_be_written_back_is_refused() -> None:
    options = ",".join(["1"] * 4_000)
    text = " AND ".join([f"a IN({options})"] * 7)  # canonically with a blank after each comma
    assert len(text) < limits.MAX_FILTER_CHARACTERS
    with pytest.raises(FilterError, match="canonical text is longer than MAX_FILTER_CHARACTERS"):
        Filter.parse(text)


def test_a_regular_expression_that_would_need_much_memory_is_refused() -> None:
    with pytest.raises(FilterError, match="RE2"):
        Filter.parse("a rlike '((a{100}){100}){100}'")
    with pytest.raises(FilterError, match="MAX_REGEX_MEMORY_BYTES"):
        Filter.parse(r"a rlike '(\pL{500})(\pL{500})'")


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(FilterError, match="a filter is a text, not int"):
        Filter.parse(3)  # type: ignore[arg-type]
    with pytest.raises(FilterError, match="surrogate"):
        Filter.parse("a = '\ud800'")
    with pytest.raises(FilterError, match="no format 'sequel'"):
        Filter.parse("a", format="sequel")
    with pytest.raises(FilterError, match="did you mean padres"):
        Filter.parse("a", format="padre")


class TestTemplates:
    """Texts that differ only in their literals are parsed once; nobody can tell but by the clock."""

    @examples(160, 3_700)
    @given(conditions(), st.randoms(use_true_random=False))
    def test_a_filled_template_equals_a_fresh_parse(self, expression: Condition, random: Random) -> None:
        text = str(FilterValue(expression))
        literals = [token for token in scan(text) if isinstance(token, LiteralToken)]
        assert split(text)[1] == [str(token) for token in literals], text
        other = text
        for token in reversed(literals):
            if token.type == "NUMBER" and token.isdigit():
                begin = token.start_pos or 0
                other = f"{other[:begin]}{random.randrange(100)}{other[begin + len(token) :]}"
        assert split(other)[0] == split(text)[0]
        Filter.parse(text)
        filled = Filter.parse(other)
        forget_templates()
        assert Filter.parse(other) == filled

    def test_literals_of_another_kind_are_another_template(self) -> None:
        assert Filter.parse("a = 1").expression == Comparison(Attribute("a"), "=", Constant(1))
        assert Filter.parse("a = 1.0").expression == Comparison(Attribute("a"), "=", Constant(1.0))
        assert Filter.parse("a = '1'").expression == Comparison(Attribute("a"), "=", Constant("1"))

    def test_a_bad_literal_in_a_known_template_is_told_with_its_place(self) -> None:
        Filter.parse("a = 1 and b rlike 'x'")
        with pytest.raises(FilterError, match="64 bits") as refused:
            Filter.parse("a = 99999999999999999999 and b rlike 'x'")
        assert refused.value.position == 4
        with pytest.raises(FilterError, match="RE2") as refused:
            Filter.parse("a = 1 and b rlike '('")
        assert refused.value.position == 18

    def test_digits_and_quotes_inside_of_names_are_no_literals(self) -> None:
        assert Filter.parse("a1 = 2 and `b'3` = 4 and c.5 = 6").names == {"a1", "b'3", "c.5"}
        assert Filter.parse("a2 = 2 and `b'3` = 4 and c.5 = 6").names == {"a2", "b'3", "c.5"}

    def test_threads_may_learn_at_once(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(4) as pool:
                texts = [f"t{i} = {i}" for i in range(4_000)]
                assert list(pool.map(lambda text: str(Filter.parse(text)), texts)) == texts
        finally:
            sys.setswitchinterval(before)

    def test_the_memory_of_templates_is_bounded(self) -> None:
        forget_templates()
        for i in range(limits.MAX_CACHED_TEMPLATES + 50):
            Filter.parse(f"a{i} = 1")
        assert template_counts()[0] == limits.MAX_CACHED_TEMPLATES

    def test_filters_that_ask_the_same_share_it(self) -> None:
        one, other = (Filter.parse(f"kind = 'k5' and level > {level}.25").expression for level in (1, 2))
        assert isinstance(one, And) and isinstance(other, And)  # noqa: PT018
        assert one.parts[0] is other.parts[0]
        assert one.parts[1] != other.parts[1]
        assert Filter.parse("level > 1").expression != Filter.parse("level > 1.0").expression
