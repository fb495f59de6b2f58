"""Filters that went the same ways share what says so."""

from tests.engine.overlay import LINE, Overlay


def test_subscriptions_that_were_sent_the_same_ways_share_what_says_so() -> None:
    overlay = Overlay(LINE)
    overlay.advertise("b4", "camera", "n > 0")
    for number in range(2):
        overlay.subscribe("b1", f"car-{number}", f"n = {number + 1}", id=f"s{number}")
    for broker, is_passed_on in (("b1", True), ("b2", True), ("b4", False)):
        one, other = (overlay.engines[broker].state.filters.subscriptions[name] for name in ("s0", "s1"))
        assert bool(one.sent_to) is is_passed_on
        assert one.sent_to is other.sent_to
        assert one.target_links is other.target_links
        assert one.senders is other.senders
