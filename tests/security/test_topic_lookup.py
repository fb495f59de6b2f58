"""On which topic an event is: found by a key, it is the same as found by looking at every template."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.security.world import World
from tests.sizes import examples
from tidings.model.values import Attributes
from tidings.security.template import Template, key_of
from tidings.security.tokens.credentials import TopicLookup
from tidings.security.topic_record import TopicRecord

WORLD = World()
LONG = "x" * 65  # longer than what is remembered
TEMPLATES = ["/Sports", "Sports=NBA,Team=*", "Floor=3", "Open=true", f"Name={LONG}", "Price=1.50,City=*", "Rate=1e2"]
TEXTS = ["NBA", "nba", "3", "3.0", "03", "true", "True", LONG, LONG[1:], "1.5", "1.50", "100", "1e2", "inf", "nan", "*"]
values: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(TEXTS), st.sampled_from([3, 3.0, True, False, 1.5, 100, 1, 1e40, -0.0, 0])
)
names = st.sampled_from(["Sports", "Team", "Floor", "Open", "Name", "Price", "City", "Rate"])


def known() -> TopicLookup:
    credentials = WORLD.credentials()
    for number, template in enumerate(TEMPLATES):
        record = TopicRecord.make(
            WORLD.ann, id=bytes([number] * 16), template=template, kmc=WORLD.kmc.certificate, version=1
        )
        credentials.learn(record, WORLD.now)
    return TopicLookup(credentials)


TOPICS = known()
PARSED = [Template.parse(template) for template in TEMPLATES]


@given(st.sampled_from([None, "/Sports", "/Other"]), st.dictionaries(names, values, max_size=4))
@examples(300, 3_000)
def test_the_topic_that_is_found_is_one_that_matches(subject: str | None, said: dict[str, Any]) -> None:
    attributes = Attributes(said)
    found = TOPICS.of(subject, attributes)
    matching = {str(one) for one in PARSED if one.matches(subject, attributes)}
    assert (found is None) == (not matching)
    assert found is None or str(found.template) in matching


@given(st.sampled_from(PARSED), st.sampled_from([None, "/Sports"]), st.dictionaries(names, values, max_size=4))
@examples(200, 2_000)
def test_what_matches_is_admitted_whatever_is_taken_away(
    template: Template, subject: str | None, said: dict[str, Any]
) -> None:
    attributes = Attributes(said)
    if template.matches(subject, attributes):
        for gone in (*attributes, None):
            left = Attributes({name: value for name, value in attributes.items() if name != gone})
            assert template.may_match(subject, left)
    elif template.subject is None and all(name in attributes for name, _ in template.tags):
        assert not template.may_match(subject, attributes)


def test_a_tag_and_all_values_that_it_means_have_one_key() -> None:
    assert {key_of(one) for one in ("3", "3.0", 3, 3.0)} == {"3"}
    assert {key_of(one) for one in ("true", "True", True)} == {"true"}
    assert key_of(LONG) == key_of("X" * 65) != key_of(LONG[1:])
