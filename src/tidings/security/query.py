"""A query: which topics somebody looks for at discovery nodes."""

from typing import Self

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_SUBJECT_CHARACTERS
from tidings.security.restriction import fits
from tidings.security.template import ANY, Template, read_tags


class Query(msgspec.Struct, frozen=True):
    """`*` are all topics; `/Sports/*` those of subjects that fit; `Sports=NBA` or `Sports=*` those of tags that say the
    same, and maybe more, or less: an event with these attributes may be on them."""

    subject: str | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        if not text or len(text) > MAX_SUBJECT_CHARACTERS:
            raise InvalidValueError(f"query: a text of 1 to MAX_SUBJECT_CHARACTERS ({MAX_SUBJECT_CHARACTERS:,})")
        if "=" in text:
            return cls(tags=tuple(sorted(read_tags(text).items())))
        return cls(subject=text)

    @property
    def template(self) -> Template | None:
        """One that overlaps all templates that it finds, if there is one: for whoever has an index."""
        if self.subject is not None:
            return None if ANY in self.subject else Template(subject=self.subject)
        return Template(tags=self.tags) if any(value != ANY for _, value in self.tags) else None

    def matches(self, template: Template) -> bool:
        if self.subject == ANY:
            return True
        if self.subject is not None:
            return template.subject is not None and fits(self.subject, template.subject)
        if template.subject is not None:
            return False
        mine, theirs = dict(self.tags), dict(template.tags)
        shared = mine.keys() & theirs.keys()
        if len(shared) < min(len(mine), len(theirs)):
            return False
        return all(ANY in (mine[name], theirs[name]) or mine[name] == theirs[name] for name in shared)
