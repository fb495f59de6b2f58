"""The five other notations: what they become, what they match, and what they refuse."""

from typing import Any

import pytest

from tidings import Filter, FilterError


@pytest.mark.parametrize(
    ("format", "text", "canonical"),
    [
        ("topic", "/Sports/Football", "$subject = '/Sports/Football'"),
        ("topic", "/Sports/*", "topic('/Sports/*')"),
        ("topic", "/Sports/#", "topic('/Sports/#')"),
        ("topic", "#", "topic('#')"),
        ("tags", "Sports=NBA,Team=*", "Sports = 'NBA' AND Team IS NOT NULL"),
        ("tags", " Sports = NBA , Team = Los Angeles ", "Sports = 'NBA' AND Team = 'Los Angeles'"),
        ("tags", "Floor=3,Open=true", "Floor IN ('3', 3) AND Open IN ('true', TRUE)"),
        ("tags", "Floor='3',`odd name`='a,b=*'", "Floor = '3' AND `odd name` = 'a,b=*'"),
        ("tags", "", "TRUE"),
        ("regex", "goal.*(Beckham|Zidane)", "$payload RLIKE 'goal.*(Beckham|Zidane)'"),
        ("xpath", "/order/item[@price>10]", "xpath('/order/item[@price>10]')"),
        ("xpath", "/a[b='it']", "xpath('/a[b=''it'']')"),
        ("padres", "[class,eq,'stock'],[price,>,10]", "class = 'stock' AND price > 10"),
        ("padres", "[a,neq,1],[b,<,2],[c,<=,3],[d,>=,4.5]", "a != 1 AND b < 2 AND c <= 3 AND d >= 4.5"),
        ("padres", "[a,=,x],[b,<>,\"y\"],[c,!=,-3]", "a = 'x' AND b != 'y' AND c != -3"),
        ("padres", "[s,str-prefix,'50%'],[s,str-postfix,'_'],[s,str-contains,'\\']",
         "s LIKE '50\\%%' AND s LIKE '%\\_' AND s LIKE '%\\\\%'"),
        ("padres", "[s,str-lt,'a'],[s,str-ge,'b'],[s,str-suffix,'c']", "s < 'a' AND s >= 'b' AND s LIKE '%c'"),
        ("padres", "[volume,isPresent,0],[class,ISPRESENT,'any']", "volume IS NOT NULL AND class IS NOT NULL"),
        ("padres", "[volume,isPresent]", "volume IS NOT NULL"),
        ("padres", "", "TRUE"),
    ],
)  # fmt: skip
def test_all_formats_become_the_same_filter(format: str, text: str, canonical: str) -> None:  # noqa: A002
    parsed = Filter.parse(text, format=format)
    assert str(parsed) == canonical
    assert Filter.parse(canonical) == parsed


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("/Sports/Football", ["/Sports/Football"], ["/Sports", "/Sports/Football/x", "/sports/Football"]),
        ("/Sports/*", ["/Sports/Football", "/Sports/"], ["/Sports", "/Sports/Football/x"]),
        ("/Sports/#", ["/Sports", "/Sports/", "/Sports/Football", "/Sports/a/b"], ["/Sportsmen", "/", "Sports"]),
        ("/*/Football", ["/Sports/Football", "//Football"], ["/Football", "/a/b/Football"]),
        ("/*/b/*/d", ["/a/b/c/d"], ["/a/b/c/c/d", "/a/b/d"]),
        ("#", ["/anything", "x"], []),
        ("*", ["x"], ["/x", "x/y"]),
        ("/a/%_", ["/a/%_"], ["/a/xy"]),
    ],
)
def test_topics(pattern: str, matching: list[str], others: list[str]) -> None:
    topic = Filter.parse(pattern, format="topic")
    assert all(topic.matches({}, subject=subject) for subject in matching)
    assert not any(topic.matches({}, subject=subject) for subject in others)
    assert not topic.matches({})


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"Sports": "NBA", "Team": "Lakers"}, True),
        ({"Sports": "NBA", "Team": 0}, True),
        ({"Sports": "NBA"}, False),
        ({"Sports": "NFL", "Team": "Bears"}, False),
    ],
)
def test_tags(event: dict[str, Any], expected: bool) -> None:
    assert Filter.parse("Sports=NBA,Team=*", format="tags").matches(event) is expected


def test_a_tag_means_text_and_typed_value_alike() -> None:
    floor = Filter.parse("Floor=3", format="tags")
    assert floor.matches({"Floor": 3})
    assert floor.matches({"Floor": "3"})
    assert floor.matches({"Floor": 3.0})
    assert not floor.matches({"Floor": True})


def test_regex_looks_into_text_payloads_only() -> None:
    goal = Filter.parse("goal.*(Beckham|Zidane)", format="regex")
    assert goal.matches({}, payload=b"a goal by Zidane!")
    assert not goal.matches({}, payload=b"no goal")
    assert not goal.matches({}, payload=b"\xff goal Zidane")
    assert not goal.matches({"payload": "goal Zidane"})


ORDER = b"<order id='7'><item price='11'>pen</item><item price='9' tax='9'>ink</item></order>"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/order/item[@price>10]", True),
        ("/order/item[@price>11]", False),
        ("//item[. = 'ink']", True),
        ("//item[@price = @tax]", True),
        ("//item[position() = 2]/@tax", True),
        ("//item[last()][@tax]", True),
        ("count(//item) = 2", True),
        ("count(//item) = 2 and not(/order/note)", True),
        ("sum(//@price) > 25", False),
        ("/order[item[@price > 10] and @id = '7']", True),
        ("//*[local-name() = 'item']", True),
        ("/order/item/text()", True),
        ("/order/child::item/attribute::price", True),
        ("/descendant::item[contains(., 'e') or starts-with(., 'x')]", True),
        ("//item[text() = 'ink']", True),
        ("/order/item[contains(text(), 'en')]", True),
        ("/order[not(text())]/node()", True),
        ("//item[. = '((((((((((((((((((((']", False),
        ("/", True),
        ("3 * 2 - 6", False),
        ("'text'", True),
        ("/order/div | /order", None),
    ],
)
def test_xpath(path: str, expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(FilterError, match="not united"):
            Filter.parse(path, format="xpath")
    else:
        assert Filter.parse(path, format="xpath").matches({}, payload=ORDER) is expected


BOMB = b"<!DOCTYPE o [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]><o>&b;</o>"


@pytest.mark.parametrize(
    "payload",
    [
        None,
        b"",
        b"not xml",
        b"<o><unclosed></o>",
        b"\xff\xfe\x00",
        BOMB,
        b"<!DOCTYPE o SYSTEM 'file:///etc/passwd'><o/>",
        b"<!DOCTYPE o [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><o>&x;</o>",
        b"<!DOCTYPE o><o/>",
        b"<o>" + b"<p>" * 40 + b"</p>" * 40 + b"</o>",
        b"<o>" + b"<p>" * 5000 + b"</p>" * 5000 + b"</o>",
        b"<o>" + b" " * 300_000 + b"</o>",
    ],
)
def test_what_is_not_plain_xml_is_unknown(payload: bytes | None) -> None:
    path = Filter.parse("/o", format="xpath")
    assert path.matches({}, payload=b"<o/>")
    assert not path.matches({}, payload=payload)
    assert not Filter.parse("not xpath('/o')").matches({}, payload=payload)


@pytest.mark.parametrize(
    ("format", "text", "position", "complaint"),
    [
        ("topic", "", 0, "a topic is not empty"),
        ("topic", "/a/#/b", 3, "# stands only at the end"),
        ("topic", "/a/b*/c", 3, "whole levels"),
        ("tags", "Sports", 6, "a tag is name=value"),
        ("tags", "Sports=", 7, "a value is missing"),
        ("tags", "Sports=N*A", 7, "stands alone"),
        ("tags", "a=1 b=2", 5, "separated by commas"),
        ("tags", "=1", 0, "a name is missing"),
        ("tags", "$a=1", 0, "the system's"),
        ("tags", "a='x", 2, "a value is missing, or a quote is not closed"),
        ("regex", "(", 0, "RE2"),
        ("regex", "(?<=x)y", 0, "RE2"),
        ("regex", r"(a)\1", 0, "RE2"),
        ("regex", "x" * 2000, 0, "MAX_PATTERN_CHARACTERS"),
        ("xpath", "", 0, "ends too early"),
        ("xpath", "/a[", 3, "ends too early"),
        ("xpath", "/a/..", 3, "the way up"),
        ("xpath", "//a//b", 3, "only at the start of a path"),
        ("xpath", "//a/descendant::b", 4, "only at the start of a path"),
        ("xpath", "/r/a//b[last()]/x", 4, "only at the start of a path"),
        ("xpath", "//*[//*]", 4, "without a slash"),
        ("xpath", "//*[/a]", 4, "without a slash"),
        ("xpath", "//*[a//b]", 5, "only at the start of a path"),
        ("xpath", "//*[descendant::b]", 4, "only at the start of a path"),
        ("xpath", "preceding::a", 0, "the axis preceding is not taken"),
        ("xpath", "//a = //b", 0, "two paths are compared"),
        ("xpath", "/a[@* = b]", 3, "two paths are compared"),
        ("xpath", "x:y", 1, "names have no prefix"),
        ("xpath", "$v", 0, "no variables"),
        ("xpath", "document('x')", 0, "the function document is not taken"),
        ("xpath", "contain(a, 'x')", 0, "did you mean contains?"),
        ("xpath", "contains(a)", 0, "takes 2 values, not 1"),
        ("xpath", "count('x')", 0, "takes a path"),
        ("xpath", "[" * 20, 16, "MAX_XPATH_NESTING"),
        ("xpath", "/a[" + " or ".join(["not(b)"] * 9) + "]", 0, "MAX_XPATH_CALLS"),
        ("xpath", "translate(., 'a', 'b')", 0, "the function translate is not taken"),
        ("xpath", "/a" * 40, 65, "MAX_XPATH_STEPS"),
        ("padres", "class,eq,x", 0, "[name,operator,value]"),
        ("padres", "[class,equals,x]", 7, "there is no operator equals"),
        ("padres", "[class,str-prefx,x]", 7, "did you mean str-prefix?"),
        ("padres", "[class,eq]", 9, "a value is missing after eq"),
        ("padres", "[class,eq,x", 11, "ends with ]"),
        ("padres", "[class,eq,x,y]", 11, "ends with ]"),
        ("padres", "[class,eq,x][a,eq,b]", 12, "separated by commas"),
        ("padres", "[class,str-contains,5]", 7, "takes a string"),
        ("padres", "[a,eq,99999999999999999999999999999]", 6, "does not fit into 64 bits"),
        ("padres", "[a,eq,-9223372036854775809]", 6, "does not fit into 64 bits"),
        ("padres", "[a,eq,1e999]", 6, "finite"),
        ("padres", "[class,PolicyConflict]", 7, "there is no operator"),
    ],
)
def test_mistakes(format: str, text: str, position: int, complaint: str) -> None:  # noqa: A002
    with pytest.raises(FilterError) as refused:
        Filter.parse(text, format=format)
    assert complaint in refused.value.message
    assert refused.value.position == position


@pytest.mark.parametrize("format", ["tags", "padres"])
def test_the_number_of_predicates_is_bounded(format: str) -> None:  # noqa: A002
    one = "a=1" if format == "tags" else "[a,eq,1]"
    with pytest.raises(FilterError, match="MAX_FILTER_PREDICATES"):
        Filter.parse(",".join([one] * 1_025), format=format)


@pytest.mark.parametrize(
    ("topic", "said", "position"),
    [
        ("+", r"write '\*'", 0),
        ("/Sports/+", r"write '/Sports/\*'", 8),
        ("Sports/+/Cup/#", r"write 'Sports/\*/Cup/#'", 7),
        ("$share/fans/Sports", "shared subscriptions of MQTT", 0),
        ("/Sports/#/Cup", "# stands only at the end", 8),
    ],
)
def test_what_only_mqtt_understands_is_refused_with_a_hint(topic: str, said: str, position: int) -> None:
    with pytest.raises(FilterError, match=said) as error:
        Filter.parse(topic, format="topic")
    assert error.value.position == position


def test_the_function_topic_refuses_a_level_of_mqtt_and_reads_what_journals_hold() -> None:
    with pytest.raises(FilterError, match=r"write '/Sports/\*'"):
        Filter.parse("topic('/Sports/+') AND n > 1")
    assert str(Filter.parse("topic('/Sports/+/#')")) == "topic('/Sports/+/#')"


def test_a_plus_inside_a_level_and_in_a_subject_is_text() -> None:
    assert Filter.parse("/Sports/c++", format="topic").matches({}, subject="/Sports/c++")
    assert Filter.parse("/Sports/*", format="topic").matches({}, subject="/Sports/+")
    assert Filter.parse("$subject = '/Sports/+'").matches({}, subject="/Sports/+")
