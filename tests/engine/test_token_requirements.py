"""Topics as filters: they mean what the templates mean, so that nobody gets around a token by writing a filter."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.sizes import examples
from tidings import Filter
from tidings.engine.security.token_requirements import condition_of
from tidings.security.template import Template

_NAMES = st.sampled_from(["a", "b", "c"])
_TEXTS = st.sampled_from(["1", "1.0", "01", "true", "TRUE", "x", "X", "0.5", "-3", "1e3", "nan", "inf", "é", "a b"])
_NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, 1.0, -3.0, 1_000.0, 1_000]))
_VALUES: st.SearchStrategy[Any] = st.one_of(_TEXTS, _NUMBERS, st.booleans())


@st.composite
def templates(draw: st.DrawFn) -> Template:
    if draw(st.booleans()):
        return Template.parse(draw(st.sampled_from(["/a", "/a/b"])))
    first = draw(_NAMES)
    tags = draw(st.dictionaries(_NAMES, st.one_of(st.just("*"), _TEXTS), max_size=3)) | {first: draw(_TEXTS)}
    return Template.parse(",".join(f"{name}={value}" for name, value in tags.items()))


@given(templates(), st.dictionaries(_NAMES, _VALUES), st.sampled_from([None, "/a", "/a/b", "/A"]))
@examples(300, 5_000)
def test_a_topic_as_a_filter_lets_pass_what_is_on_it_and_nothing_else(
    template: Template, attributes: dict[str, Any], subject: str | None
) -> None:
    found = Filter(condition_of(template)).matches(attributes, subject=subject)
    assert found is template.matches(subject, attributes)
