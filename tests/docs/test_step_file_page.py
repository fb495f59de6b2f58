"""The page of the step file names every keyword that a step file may have, and every kind of violation."""

import re
from typing import get_args

from tests.docs.shell import ROOT
from tidings.simulation.checking.checker import Kind
from tidings.simulation.step_line import KEYWORDS

PAGE = (ROOT / "docs" / "reference" / "step-file.md").read_text()


def test_every_keyword_is_explained() -> None:
    words = {word for code in re.findall(r"`([^`\n]+)`", PAGE) for word in re.findall(r"[a-z_-]+", code)}
    assert not {*KEYWORDS, *get_args(Kind)} - words
