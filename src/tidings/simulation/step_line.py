"""Reads and writes one line of a step file.

A line is a sequence of tokens. A token is a word, or an option `key=value`, or an option with several values
`key=value,value`. A word is bare (`b1`, `0.7`) or quoted (`"a > 1"`, written as in JSON). Two rules make every step
expressible:

1. A bare word may be a keyword; a quoted word is never one. So a client that is named `cut` is written `"cut"`.
2. A bare value of an attribute is a number, `true` or `false`; a quoted value is a string.

`#` outside a quoted word begins a comment.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tidings.coerce import content_filter, context_filter, policy_text
from tidings.configuration import check_parses
from tidings.model.advertisement import checked_id
from tidings.model.errors import InvalidValueError
from tidings.model.values import Value, checked_name, checked_value
from tidings.simulation.checking.steps import (
    Advertises,
    Leaves,
    Moves,
    Publishes,
    Returns,
    SetsContext,
    Settles,
    Step,
    Subscribes,
    Unadvertises,
    Unsubscribes,
    Waits,
)
from tidings.simulation.faults import Crash, Cut, Heal, Lossy, Pause, Restart, Resume, Slow
from tidings.simulation.topologies import Topology

_WORD = r'(?:"(?:[^"\\]|\\.)*"|[^\s"=,#]+)'
_WORDS = re.compile(_WORD)
_TOKEN = re.compile(rf"(?:(?P<key>{_WORD})=)?(?P<values>{_WORD}(?:,{_WORD})*)(?=[\s#]|$)")
_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"[A-Za-z_$][A-Za-z0-9_.$-]*")


class Word(NamedTuple):
    """A bare or quoted word."""

    text: str
    is_quoted: bool = False

    def is_keyword(self, keyword: str) -> bool:
        """Return whether the word is this keyword; a quoted word never is."""
        return self.text == keyword and not self.is_quoted


class LineToken(NamedTuple):
    """A word, or an option with one or more values."""

    values: tuple[Word, ...]
    key: Word | None = None

    @property
    def word(self) -> Word:
        """The single word of the token. Raises `InvalidValueError` if it is an option or has several values."""
        if self.key is not None or len(self.values) != 1:
            raise InvalidValueError(f"a word is needed here, not {self}")
        return self.values[0]

    def __str__(self) -> str:
        values = ",".join(_shown(word) for word in self.values)
        return values if self.key is None else f"{_shown(self.key)}={values}"


class Names(NamedTuple):
    """The names that a step may refer to."""

    topology: Topology
    clients: frozenset[str]


def tokens_of(line: str) -> list[LineToken]:
    """Split a line into tokens, without its comment. Raises `InvalidValueError`."""
    tokens: list[LineToken] = []
    position = _after_space(line, 0)
    while position < len(line) and line[position] != "#":
        match = _TOKEN.match(line, position)
        if match is None:
            rest = line[position:].rstrip()
            hint = "; a closing quote is missing" if rest.count('"') == 1 else ""
            raise InvalidValueError(f"cannot be read from here on: {rest}{hint}")
        key = match["key"]
        values = tuple(_word(part) for part in _WORDS.findall(match["values"]))
        tokens.append(LineToken(values, None if key is None else _word(key)))
        position = _after_space(line, match.end())
    return tokens


def read_number(word: Word, name: str) -> float:
    """Parse a number from 0 to 1,000,000,000; for a probability (`loss`, `duplication`, `reordering`), from 0 to 1."""
    try:
        number: float = _decoded(word, float)
    except msgspec.DecodeError:
        raise InvalidValueError(f"{name}: {word.text!r:.40} is not a number") from None
    most = 1 if name in _PROBABILITIES else _LARGEST_NUMBER
    if not 0 <= number <= most:
        raise InvalidValueError(f"{name}: must be from 0 to {most}, not {word.text:.40}")
    return number


def read_broker(word: Word, topology: Topology) -> str:
    """Return the name of a broker. Raises `InvalidValueError` if the topology has none of that name."""
    if word.text not in topology.brokers:
        raise InvalidValueError(f"there is no broker {word.text!r}")
    return word.text


def write_name(name: str) -> str:
    """Return a name as a bare word, or quoted if it could be mistaken."""
    return name if _BARE.fullmatch(name) and name not in KEYWORDS else _quoted(name)


def write_number(number: float) -> str:
    return repr(number)


# Fields of steps: how each is parsed from a token, and written


class _Codec(NamedTuple):
    """Parses and writes the values of a field."""

    read: Callable[[Word, str, Names], Any]
    write: Callable[[Any], str]


def _text_codec(check: Callable[[str], object]) -> _Codec:
    def read(word: Word, name: str, _: Names) -> str:
        check_parses(name, check, word.text)
        return word.text

    return _Codec(read, lambda text: _quoted(text))


_PROBABILITIES = frozenset({"loss", "duplication", "reordering"})
_LARGEST_NUMBER = 1_000_000_000  # limits seconds as well, so that a simulation ends
_ID = _Codec(lambda word, _, __: checked_id(word.text), write_name)
_CONTEXT_NAME = _Codec(lambda word, _, __: checked_name(word.text), write_name)
_BROKER = _Codec(lambda word, _, names: read_broker(word, names.topology), write_name)
_NUMBER = _Codec(lambda word, name, _: read_number(word, name), write_number)
_CONTENT = _text_codec(content_filter)
_CONTEXT = _text_codec(context_filter)
_CODECS: dict[str, _Codec] = {
    "id": _ID,
    "durable": _ID,
    "content": _CONTENT,
    "publishers": _CONTEXT,
    "subscribers": _CONTEXT,
    "policy": _text_codec(policy_text),
    "publisher_context": _CONTEXT_NAME,
    "subscriber_context": _CONTEXT_NAME,
    "broker": _BROKER,
    "one": _BROKER,
    "other": _BROKER,
    **dict.fromkeys(("at", "factor", "seconds", *sorted(_PROBABILITIES)), _NUMBER),
}
_LISTS = frozenset({"publisher_context", "subscriber_context"})
_OFFER, _ALL = "publisher_context", "*"  # the option, and its value that offers all names


class _Form(NamedTuple):
    """The syntax of a type of step: a keyword, positional fields, a flag, options, and the values of a mapping."""

    keyword: str
    step: Callable[..., Step]
    positional: tuple[str, ...] = ()
    flag: str = ""
    options: tuple[str, ...] = ()
    mapping: str = ""

    @property
    def required(self) -> list[str]:
        return [field.name for field in msgspec.structs.fields(self.step) if field.required]  # type: ignore[arg-type]

    @property
    def usage(self) -> str:
        required = self.required
        parts = ["CLIENT", self.keyword] if "client" in required else [self.keyword]
        parts += [name.upper() if name in required else f"[{name.upper()}]" for name in self.positional]
        parts += [f"[{_flag_word(self.flag)}]"] if self.flag else []
        parts += ["[NAME=VALUE ...]"] if self.mapping else []
        parts += [
            f"{name}={name.upper()}" if name in required and name != "at" else f"[{name}=...]" for name in self.options
        ]
        return f"the step is written: {' '.join(parts)}"


_OF_CLIENTS = {
    form.keyword: form
    for form in (
        _Form("subscribe", Subscribes, ("id", "content"), options=("publishers", "policy", "durable")),
        _Form("unsubscribe", Unsubscribes, ("id",)),
        _Form("advertise", Advertises, ("id", "content"), options=("publisher_context", "subscriber_context")),
        _Form("unadvertise", Unadvertises, ("id",)),
        _Form("context", SetsContext, mapping="context"),
        _Form("publish", Publishes, options=("subscribers",), mapping="attributes"),
        _Form("leave", Leaves),
        _Form("return", Returns),
        _Form("move", Moves, ("broker",)),
    )
}
_OF_THE_WORLD = {
    form.keyword: form
    for form in (
        _Form("wait", Waits, ("seconds",)),
        _Form("settle", Settles),
        _Form("cut", Cut, ("one", "other"), flag="one_way", options=("at",)),
        _Form("heal", Heal, ("one", "other"), options=("at",)),
        _Form("slow", Slow, ("one", "other"), options=("factor", "at")),
        _Form("lossy", Lossy, ("one", "other"), options=("loss", "duplication", "reordering", "at")),
        _Form("crash", Crash, ("broker",), options=("at",)),
        _Form("restart", Restart, ("broker",), options=("at",)),
        _Form("pause", Pause, ("broker",), options=("at",)),
        _Form("resume", Resume, ("broker",), options=("at",)),
    )
}
_FORMS = {form.step: form for form in (*_OF_CLIENTS.values(), *_OF_THE_WORLD.values())}
HEADER = ("expect", "strategy", "seed", "network", "resends", "brokers", "link", "client")
_OPTIONS = {name for form in _FORMS.values() for name in form.options}
KEYWORDS = frozenset({*HEADER, *_OF_CLIENTS, *_OF_THE_WORLD, *_OPTIONS, "one-way"})


def read_step(tokens: Sequence[LineToken], names: Names) -> Step:
    """Parse a step from the tokens of its line. Raises `InvalidValueError`."""
    form, client, rest = _form(tokens, names)
    fields: dict[str, Any] = {} if client is None else {"client": client}
    fields |= _fields(form, rest, names)
    missing = [name for name in form.required if name not in fields]
    if missing:
        raise InvalidValueError(f"{', '.join(missing)} missing; {form.usage}")
    _check_link(fields, names.topology)
    return form.step(**fields)


def write_step(step: Step) -> str:
    """Return the line of a step; `read_step` returns an equal step."""
    form = _FORMS[type(step)]
    defaults = {field.name: field.default for field in msgspec.structs.fields(type(step))} | {"at": 0}
    fields = {name: value for name, value in msgspec.structs.asdict(step).items() if value != defaults.get(name)}
    parts = [write_name(fields["client"]), form.keyword] if "client" in fields else [form.keyword]
    parts += [_CODECS[name].write(fields[name]) for name in form.positional if name in fields]
    parts += [_flag_word(form.flag)] if form.flag in fields else []
    parts += [f"{write_name(name)}={_write_value(value)}" for name, value in fields.get(form.mapping, {}).items()]
    parts += [f"{name}={_write_option(name, fields[name])}" for name in form.options if name in fields]
    return " ".join(parts)


def _form(tokens: Sequence[LineToken], names: Names) -> tuple[_Form, str | None, Sequence[LineToken]]:
    """Return the form of the step, the client that takes it, if any, and the tokens of its fields."""
    first = tokens[0].word
    if not first.is_quoted and first.text in _OF_THE_WORLD:
        form = _OF_THE_WORLD[first.text]
        return form, None, tokens[1:]
    if first.text not in names.clients:
        raise InvalidValueError(f"{first.text!r} is neither a client nor one of the steps {', '.join(_OF_THE_WORLD)}")
    second = tokens[1].word if len(tokens) > 1 else Word("")
    if second.is_quoted or second.text not in _OF_CLIENTS:
        raise InvalidValueError(f"{second.text!r} is not a step of a client: {', '.join(_OF_CLIENTS)}")
    return _OF_CLIENTS[second.text], first.text, tokens[2:]


def _fields(form: _Form, tokens: Iterable[LineToken], names: Names) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    mapping: dict[str, Value] = {}
    positional = iter(form.positional)
    for token in tokens:
        if token.key is None:
            name, value = _positional(form, token.word, positional, names)
        elif not token.key.is_quoted and token.key.text in form.options:
            name = token.key.text
            value = _read_option(name, token, names)
        elif form.mapping:
            _put(mapping, checked_name(token.key.text), _read_value(LineToken(token.values).word, token.key.text))
            continue
        else:
            raise InvalidValueError(f"there is no option {token.key.text!r}; {form.usage}")
        _put(fields, name, value)
    if form.mapping:
        fields[form.mapping] = mapping
    if "at" in form.options:
        fields.setdefault("at", 0.0)
    return fields


def _positional(form: _Form, word: Word, positional: Iterator[str], names: Names) -> tuple[str, Any]:
    if form.flag and word.is_keyword(_flag_word(form.flag)):
        return form.flag, True
    name = next(positional, None)
    if name is None:
        raise InvalidValueError(f"{_shown(word)} is too much; {form.usage}")
    return name, _CODECS[name].read(word, name, names)


def _put(fields: dict[str, Any], name: str, value: Any) -> None:
    if name in fields:
        raise InvalidValueError(f"{name} is given twice")
    fields[name] = value


def _read_option(name: str, token: LineToken, names: Names) -> Any:
    if name == _OFFER and [(word.text, word.is_quoted) for word in token.values] == [(_ALL, False)]:
        return None
    if name in _LISTS:
        return tuple(_CODECS[name].read(word, name, names) for word in token.values)
    return _CODECS[name].read(LineToken(token.values).word, name, names)


def _write_option(name: str, value: Any) -> str:
    if name == _OFFER and value is None:
        return _ALL
    return ",".join(map(_CODECS[name].write, value)) if name in _LISTS else _CODECS[name].write(value)


def _read_value(word: Word, name: str) -> Value:
    if word.is_quoted:
        return checked_value(word.text, name)
    try:
        return checked_value(_decoded(word, bool | int | float), name)
    except msgspec.DecodeError:
        raise InvalidValueError(
            f"{name}: {word.text!r} is not a number, true or false; a string is written in quotes"
        ) from None


def _write_value(value: Value) -> str:
    return msgspec.json.encode(value).decode()


def _check_link(fields: Mapping[str, Any], topology: Topology) -> None:
    if "one" in fields and fields["other"] not in topology.neighbours(fields["one"]):
        raise InvalidValueError(f"{fields['one']} and {fields['other']} are not linked")


def _flag_word(field: str) -> str:
    return field.replace("_", "-")


def _after_space(line: str, position: int) -> int:
    match = _SPACE.match(line, position)
    return position if match is None else match.end()


def _word(part: str) -> Word:
    if not part.startswith('"'):
        return Word(part)
    try:
        return Word(msgspec.json.decode(part, type=str), is_quoted=True)
    except msgspec.DecodeError as error:
        raise InvalidValueError(f"{part} is not a string as in JSON: {error}") from None


def _shown(word: Word) -> str:
    return _quoted(word.text) if word.is_quoted else word.text


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _decoded(word: Word, kind: Any) -> Any:
    """Decode a bare word as JSON; a quoted word is a string, which never decodes as a number."""
    return msgspec.json.decode(_quoted(word.text) if word.is_quoted else word.text, type=kind)
