"""Names that programs, files and people outside rely on, one golden file for each subject.

The files (`*.txt`) were collected from the running code; `tests/compatibility/test_names.py` collects them again and
compares. They do not depend on the names of modules and classes, except where these are public: the tag of a message,
an error that is sent to a client, what a program imports. `bytes.txt` holds a sample of everything that is encoded.

A change that is intended is written down with

    python -m tests.compatibility.names

which rewrites the files: what the difference takes away, no older program, file or script can rely on any more.
Behind ` # ` stands the name of a field that is encoded by its place. Another name for it changes nothing outside and is
not compared; a name that stands at another place than before is a break.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.compatibility.names import answers, batch, exit_codes, formats, interface, settings
from tests.compatibility.names.samples import samples

COMMAND = "python -m tests.compatibility.names"
FOLDER = Path(__file__).parent
SUBJECTS: dict[str, Callable[[], Iterable[str]]] = {
    "answers": answers.lines,
    "api": interface.lines,
    "command-line": settings.command_lines,
    "environment": settings.environment_lines,
    "errors": formats.error_lines,
    "exit-codes": exit_codes.lines,
    "files": formats.file_lines,
    "journal": formats.journal_lines,
    "log": formats.log_lines,
    "meta-events": formats.meta_event_lines,
    "metrics": formats.metric_lines,
    "policy": formats.policy_lines,
    "reserved": formats.reserved_lines,
    "security": formats.security_lines,
    "snapshot": formats.snapshot_lines,
    "spark": batch.lines,
    "toml": settings.toml_lines,
    "wire": formats.wire_lines,
}
COLUMNS, BYTES = "spark-columns", "bytes"  # the one needs a Spark session, the other is compared in another way
_COMMENT = " # "
_BETWEEN = ": "
_NUMBER = re.compile(r"(\d+)")
_PLACE = re.compile(r"(?P<array>.*)\[(?P<place>\d+)\] .* # (?P<name>\w+)")


def golden_path(subject: str) -> Path:
    return FOLDER / f"{subject}.txt"


def golden(subject: str) -> list[str]:
    return golden_path(subject).read_text().splitlines()


def in_order(lines: Iterable[str]) -> list[str]:
    """Each line once, sorted; numbers in them by their value."""
    return sorted(set(lines), key=_order)


def _order(line: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(line)]


def difference(subject: str, collected: Iterable[str]) -> str:
    """What has gone and what is new, for people; empty where nothing differs."""
    former, present = golden(subject), list(collected)
    before, after = set(map(_compared, former)), set(map(_compared, present))
    parts = [
        *_part("at another place in an array, which breaks what relies on it", "!", set(_moves(former, present))),
        *_part("gone, which breaks what relies on it", "-", before - after),
        *_part("new", "+", after - before),
    ]
    if not parts:
        return ""
    told = f"if this is intended, `{COMMAND}` rewrites {golden_path(subject).relative_to(FOLDER.parents[2])}"
    return "\n".join(["", *parts, told])


def _compared(line: str) -> str:
    return line.partition(_COMMENT)[0]


def _moves(former: Iterable[str], present: Iterable[str]) -> Iterator[str]:
    """The fields of arrays that are called as before and stand elsewhere. Where two fields of one type change places,
    nothing else tells: the lines without names stay the same."""
    before, after = _places(former), _places(present)
    for array, name in before.keys() & after.keys():
        if before[array, name] != after[array, name]:
            yield f"{array}[{before[array, name]}] is [{after[array, name]}] now # {name}"


def _places(lines: Iterable[str]) -> dict[tuple[str, str], str]:
    found = filter(None, map(_PLACE.fullmatch, lines))
    return {(one["array"], one["name"]): one["place"] for one in found}


def _part(title: str, sign: str, lines: set[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from (f"  {sign} {line}" for line in in_order(lines))


def golden_bytes() -> dict[str, str]:
    """The bytes of samples as text, by their labels."""
    return dict(_split(line) for line in golden(BYTES))


def split_bytes(text: str) -> dict[str, str]:
    """The same from the text of such a file."""
    return dict(_split(line) for line in text.splitlines())


def _split(line: str) -> tuple[str, str]:
    label, _, text = line.partition(_BETWEEN)
    return label, text


def encoded_samples() -> Iterator[str]:
    yield from (f"{one.label}{_BETWEEN}{one.written(one.encode(one.value))}" for one in samples())
