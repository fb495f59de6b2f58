"""Parse tags: `Sports=NBA,Team=*`.

Each tag requires that an attribute equals a value, or with `*` that it is present.
"""

from tidings.language.words import WordReader, plain_value
from tidings.model.errors import FilterError
from tidings.model.expression import Attribute, Comparison, Condition, Constant, In, IsNull, Not, all_of


def parse(text: str) -> Condition:
    """Parse tags; raise `FilterError` if they are not valid."""
    words = WordReader(text)
    tags: list[Condition] = []
    while words.more():
        if tags:
            words.sign(",", "tags are separated by commas")
        words.count_predicate()
        attribute = Attribute(words.name())
        words.sign("=", f"a tag is name=value, or {attribute.name}=* for 'present'")
        tags.append(_tag(words, attribute))
    return all_of(tags)


def _tag(words: WordReader, attribute: Attribute) -> Condition:
    start = words.position
    word, quoted = words.word("a value")
    if quoted:
        return Comparison(attribute, "=", Constant(word))
    if word == "*":
        return Not(IsNull(attribute))
    if "*" in word:
        complaint = "* stands alone and means 'present'; a star that is meant literally stands in quotes"
        raise FilterError(complaint, words.text, start)
    # A tag is text, an attribute may be typed: Floor=3 and Open=true match both. Too large a number is only text.
    try:
        plain = {"true": True, "false": False}.get(word.lower(), plain_value(word, words.text, start))
    except FilterError:
        plain = word
    if isinstance(plain, str):
        return Comparison(attribute, "=", Constant(plain))
    return In(attribute, (Constant(word), Constant(plain)))
