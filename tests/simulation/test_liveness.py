"""Who was heard of lately is there."""

from tidings.simulation.link import Liveness


def test_so_many_heartbeats_may_fail_to_come_and_no_more() -> None:
    liveness = Liveness(interval=10, patience=3, now=100)
    assert liveness.is_alive(130)
    assert not liveness.is_alive(131)
    liveness.heard(131)
    assert liveness.is_alive(161)
    assert not liveness.is_alive(162)


def test_news_from_the_past_changes_nothing() -> None:
    liveness = Liveness(interval=10, patience=3, now=100)
    liveness.heard(50)
    assert liveness.is_alive(130)
