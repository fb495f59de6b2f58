"""Services that are not there yet are asked again, for a limited time; a refusal is an answer."""

import asyncio
from typing import Any

import pytest

from tests.client.clock import tick
from tidings.client.secure.service_rpc import Retry
from tidings.model.errors import InvalidValueError, RefusedError, TidingsError, UnreachableError

SILENCE = UnreachableError("nobody answers")


class _Service:
    """It gives these answers, one after the other, and the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self._answers = answers
        self.questions = 0

    async def ask(self) -> Any:
        self.questions += 1
        answer = self._answers[min(self.questions, len(self._answers)) - 1]
        if isinstance(answer, TidingsError):
            raise answer
        return answer


def test_silence_and_nothing_are_waited_for() -> None:
    service = _Service(SILENCE, [], SILENCE, ["found"])
    assert asyncio.run(Retry(60).answer_to(service.ask, bool)) == ["found"]
    assert service.questions == 4


def test_any_answer_ends_a_wait_that_looks_for_nothing() -> None:
    service = _Service(SILENCE, [], ["found"])
    assert asyncio.run(Retry(60).answer_to(service.ask)) == []


def test_a_refusal_is_not_waited_for() -> None:
    service = _Service(RefusedError("authorize", "you may not"), ["found"])
    with pytest.raises(RefusedError, match="you may not"):
        asyncio.run(Retry(60).answer_to(service.ask, bool))
    assert service.questions == 1


@pytest.mark.parametrize(("seconds", "questions"), [(0, 1), (3.5, 4)])
def test_when_the_time_is_over_the_last_answer_counts(
    monkeypatch: pytest.MonkeyPatch, seconds: float, questions: int
) -> None:
    tick(monkeypatch)
    silent, empty = _Service(SILENCE), _Service([])
    with pytest.raises(UnreachableError, match="nobody answers"):
        asyncio.run(Retry(seconds).answer_to(silent.ask, bool))
    assert asyncio.run(Retry(seconds).answer_to(empty.ask, bool)) == []
    assert (silent.questions, empty.questions) == (questions, questions)


def test_questions_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tick(monkeypatch)
    retry, first, second = Retry(3.5), _Service(SILENCE), _Service(SILENCE)
    for service in (first, second):
        with pytest.raises(UnreachableError):
            asyncio.run(retry.answer_to(service.ask))
    assert (first.questions, second.questions) == (4, 1)


@pytest.mark.parametrize("seconds", [-1, float("nan"), "long", None])
def test_a_wait_is_seconds_from_zero_on(seconds: Any) -> None:
    """With NaN it would never be over."""
    with pytest.raises(InvalidValueError, match="wait: seconds from 0 on, not"):
        Retry(seconds)
