"""The evaluators themselves: what is wrong in a page must fail, or everything else here proves nothing."""

from pathlib import Path

import pytest
from sybil import Document, Example

from tests.docs.blocks import parse_blocks
from tests.docs.brokers import stop_brokers
from tests.docs.tables import parse_tables


def examples(text: str, folder: Path) -> list[Example]:
    page = folder / "page.md"
    page.write_text(text)
    return list(Document.parse(str(page), parse_blocks, parse_tables))


def evaluate(text: str, folder: Path) -> int:
    """Runs everything in the page and answers how much there was."""
    found = examples(text, folder)
    try:
        for example in found:
            example.evaluate()
    finally:
        for example in found:
            stop_brokers(example.namespace)
    return len(found)


CONNECTED = "with td.connect_sync('tidings://127.0.0.1:7450', name='reader') as client"
GOOD = {
    "session": "```python\n>>> 1 + 1\n2\n```\n",
    "session with ellipsis": "```python\n>>> list(range(99))\n[0, 1, ..., 98]\n```\n",
    "code": "```python\nx = 1\nassert x\n```\n",
    "broker": f"```python\n>>> import tidings as td\n>>> {CONNECTED}: client.broker\n'b1'\n```\n",
    "broker, in code": f"```python\nimport tidings as td\n{CONNECTED}:\n    assert client.broker == 'b1'\n```\n",
    "json": '```json\n{"a": [1, 2]}\n```\n',
    "toml": "```toml\na = 1\n```\n",
    "console": "```console\n$ python -c 'print(6 * 7)'\n42\n```\n",
    "console with ellipsis": "```console\n$ python -c 'print(list(range(99)))'\n[0, ..., 98]\n```\n",
    "failing command": "```console\n$ python -c 'raise SystemExit(3)'\n$ echo $?\n3\n```\n",
    "carried on": "```console\n$ python \\\n  -c 'print(1)'\n1\n```\n",
    "make": "```console\n$ make docs\n```\n",
    "setting up": "```console\n$ git clone https://example.org/t\n$ cd tidings\n$ source .venv/bin/activate\n```\n",
    "table of outcomes": '| sql | attributes | outcome |\n|---|---|---|\n| `n > 3` | `{"n": 4}` | true |\n',
    "table of values": '| expression | attributes | value |\n|---|---|---|\n| `n / 2` | `{"n": 3}` | `1.5` |\n',
    "table of relations": "| first | second | relation |\n|---|---|---|\n| `n > 3` | `n > 4` | covers |\n",
    "table of errors": "| topic | error |\n|---|---|\n| `#/a` | `in a topic, # stands only at the end` |\n",
    "bars in a table": "| regex | canonical |\n|---|---|\n| `a\\|b` | `$payload RLIKE 'a\\|b'` |\n",
    "table of limits": "| limit | number |\n|---|---|\n| `MAX_IN_VALUES` | 4,096 |\n",
    "table of rules": "| policy rule | canonical |\n|---|---|\n| `Then Log()` | `If {} Then {Log()}` |\n",
    "table of refused rules": "| policy rule | error |\n|---|---|\n| `Then !` | "
    "`'!' has no meaning here; there is no negation; put the other case into an Elseif` |\n",
    "table of elements": "| element | call |\n|---|---|\n| `Log` | `Log([values...])` |\n",
    "table of places": "| rules on | publish | subscribe |\n|---|---|---|\n| Publication | attached | associated |\n",
}
BAD = {
    "wrong output": "```python\n>>> 1 + 1\n3\n```\n",
    "failing code": "```python\nassert False\n```\n",
    "session that stops": "```python\n>>> 1 + 1\n2\n\nprint('never run')\n```\n",
    "comment before a session": "```python\n# first\n>>> 1 + 1\n3\n```\n",
    "broker, wrong output": f"```python\n>>> import tidings as td\n>>> {CONNECTED}: client.broker\n'b2'\n```\n",
    "other language": "```bash\nls\n```\n",
    "no language": "```\nls\n```\n",
    "directive with code": "```{code-block} python\n1 / 0\n```\n",
    "fence of tildes": "~~~ruby\nputs 1\n~~~\n",
    "json": "```json\n{a: 1}\n```\n",
    "toml": "```toml\na = \n```\n",
    "console, wrong output": "```console\n$ python -c 'print(6 * 7)'\n43\n```\n",
    "console, output left out": "```console\n$ python -c 'print(6 * 7)'\n```\n",
    "console, no command": "```console\n42\n```\n",
    "console, status not asked for": "```console\n$ python -c 'raise SystemExit(3)'\n```\n",
    "console, wrong status": "```console\n$ python -c 'raise SystemExit(3)'\n$ echo $?\n0\n```\n",
    "console, other command": "```console\n$ ls\n```\n",
    "console, shell": "```console\n$ python -c 'print(1)' | cat\n1\n```\n",
    "console, unknown target": "```console\n$ make tea\n```\n",
    "console, output of what is not run": "```console\n$ make docs\nall is well\n```\n",
    "table of outcomes": '| sql | attributes | outcome |\n|---|---|---|\n| `n > 3` | `{"n": 3}` | true |\n',
    "table of values": '| expression | attributes | value |\n|---|---|---|\n| `n / 2` | `{"n": 4}` | `2` |\n',
    "table of relations": "| first | second | relation |\n|---|---|---|\n| `n > 4` | `n > 3` | covers |\n",
    "table, canonical": "| tags | canonical |\n|---|---|\n| `a=1` | `a = 1` |\n",
    "table, error instead of outcome": "| sql | outcome |\n|---|---|\n| `n >` | true |\n",
    "table, held to nothing": "| sql | meaning |\n|---|---|\n| `n > 3` | n is above 3 |\n",
    "table of limits": "| limit | number |\n|---|---|\n| `MAX_IN_VALUES` | 4,095 |\n",
    "table of rules": "| policy rule | canonical |\n|---|---|\n| `Then Log()` | `Then Log()` |\n",
    "table of elements": "| element | call |\n|---|---|\n| `Log` | `Log()` |\n",
    "table of places": "| rules on | publish |\n|---|---|\n| Subscription | attached |\n",
}


@pytest.mark.process
@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_what_is_right_passes(text: str, tmp_path: Path) -> None:
    assert evaluate(text, tmp_path) > 0


@pytest.mark.process
@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_what_is_wrong_fails(text: str, tmp_path: Path) -> None:
    assert examples(text, tmp_path)
    with pytest.raises((AssertionError, SyntaxError, ValueError)):
        evaluate(text, tmp_path)


def test_names_live_as_long_as_the_page(tmp_path: Path) -> None:
    assert evaluate("```python\n>>> x = 1\n```\nand\n```python\nassert x == 1\n```\n", tmp_path) == 2
    with pytest.raises(AssertionError):
        evaluate("```python\n>>> x\n1\n```\n", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "```text\nanything\n```\n",
        "```{literalinclude} ../file\n:language: text\n```\n",
        "```text\n| sql | outcome |\n|---|---|\n| `n >` | true |\n```\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
    ],
)
def test_what_only_shows_is_left_alone(text: str, tmp_path: Path) -> None:
    assert examples(text, tmp_path) == []
