"""Which secure topic a subscription is for: it can have one token, so it is for one topic."""

from collections.abc import Iterable
from functools import lru_cache

from tidings.filters import Filter
from tidings.model.errors import InvalidValueError
from tidings.protocol.requests import Subscribe
from tidings.security.records import TopicRecord
from tidings.security.template import ANY, Template


def named(template: str, topics: Iterable[TopicRecord]) -> TopicRecord:
    """The topic with that template, or one that it is a part of."""
    wanted = Template.parse(template)
    for record in topics:
        if record.template.covers(wanted):
            return record
    raise InvalidValueError(f"topic: no secure topic {template} is known here; give its record, or find it")


def meant(wanted: Subscribe, topics: Iterable[TopicRecord]) -> TopicRecord | None:
    """The topic that a subscription asks for without saying so: that of its subject, or one all of whose values it
    asks for. A broader one is for no topic."""
    content = Filter.parse(wanted.content)
    for record in topics:
        template = record.template
        if template.subject is not None:
            if template.subject == wanted.subject:
                return record
        elif template.key[0] in content.names and _valued(template).covers(content):
            return record
    return None


def is_confined(wanted: Subscribe, record: TopicRecord) -> bool:
    """Whether nothing else than the topic is asked for: then a token is needed."""
    if record.template.subject is not None:
        return record.template.subject == wanted.subject
    return _whole(str(record.template)).covers(Filter.parse(wanted.content))


def _valued(template: Template) -> Filter:
    return _whole(",".join(f"{name}={value}" for name, value in template.tags if value != ANY))


@lru_cache(4_096)
def _whole(tags: str) -> Filter:
    return Filter.parse(tags, "tags")
