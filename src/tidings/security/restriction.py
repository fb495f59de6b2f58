"""A restriction: who may find something at a discovery node, by name and role of the asker's certificate."""

import msgspec

from tidings.model.errors import InvalidValueError
from tidings.model.limits import MAX_NAME_CHARACTERS, MAX_RESTRICTION_NAMES
from tidings.security.certificates import Certificate, Role

ANY = "*"


class Restriction(msgspec.Struct, frozen=True, array_like=True):
    """Empty: whoever has a certificate. `names` are patterns, in which * stands for any run of characters; `roles` are
    words. Where both are given, both must fit."""

    names: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def check(self) -> None:
        if len(self.names) > MAX_RESTRICTION_NAMES:
            raise InvalidValueError(f"a restriction has at most MAX_RESTRICTION_NAMES ({MAX_RESTRICTION_NAMES}) names")
        for name in self.names:
            if not 0 < len(name) <= MAX_NAME_CHARACTERS:
                raise InvalidValueError(f"a restriction: a name has 1 to {MAX_NAME_CHARACTERS} characters")
        known = [one.value for one in Role]
        for role in self.roles:
            if role not in known:
                raise InvalidValueError(f"a restriction: {role!r:.80} is no role; there are {', '.join(known)}")

    def admits(self, asker: Certificate) -> bool:
        if self.roles and asker.role.value not in self.roles:
            return False
        return not self.names or any(fits(one, asker.name) for one in self.names)


def fits(pattern: str, text: str) -> bool:
    """Whether the text is what the pattern says; each part between two * is looked for once, so it takes no time."""
    first, *rest = pattern.split(ANY)
    if not rest:
        return pattern == text
    *middle, last = rest
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    position, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True
