"""'Did you mean': the nearest word that would have been right."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A half-sentence to append to an error, or nothing."""
    by_lower = {one.lower(): one for one in known}
    near = get_close_matches(word[:64].lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""
