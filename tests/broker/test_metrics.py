"""What a broker counts is what Prometheus reads."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from tests.sizes import examples
from tidings.broker.metrics import BOUNDS, Durations, Gauges, Metrics, SecurityGauges
from tidings.broker.ops.prometheus import PrometheusPage
from tidings.model.errors import InvalidValueError, JournalFullError, RefusedError


def samples(exposition: PrometheusPage) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    page, _ = exposition.page()
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(page.decode())
        for one in family.samples
    }


def test_counters_and_gauges_are_on_the_page() -> None:
    metrics = Metrics()
    operations, traffic = metrics.operations, metrics.traffic
    operations.accepted, operations.repeated, operations.delivered, operations.lost = 5, 2, 9, 1
    operations.refused["admit"] += 3
    operations.refused["govern"] += 1
    traffic.bytes_in, traffic.bytes_out, traffic.link_messages_out = 100, 200, 7
    gauges = Gauges(connections=4, subscriptions=6, links=1, links_configured=2, journal_offset=50)
    found = samples(PrometheusPage("b1", metrics, lambda: gauges))
    assert found["tidings_publications_total", (("outcome", "accepted"),)] == 5
    assert found["tidings_publications_total", (("outcome", "repeated"),)] == 2
    assert found["tidings_refusals_total", (("step", "admit"),)] == 3
    assert found["tidings_notifications_total", ()] == 9
    assert found["tidings_notifications_dropped_total", ()] == 1
    assert found["tidings_network_bytes_total", (("direction", "in"),)] == 100
    assert found["tidings_link_messages_total", (("direction", "out"),)] == 7
    assert found["tidings_connections", ()] == 4
    assert found["tidings_links_configured", ()] == 2
    assert found["tidings_journal_offset", ()] == 50
    assert ("tidings_certificate_expiry_timestamp_seconds", ()) not in found
    assert any(name == "tidings_info" and ("broker", "b1") in labels for name, labels in found)


def test_what_is_refused_is_counted_by_the_step_that_did() -> None:
    metrics = Metrics()
    for error in (RefusedError("govern", "no"), JournalFullError("no room"), InvalidValueError("no name")):
        metrics.operations.refuse(error)
    assert metrics.operations.refused == {"govern": 1, "journal": 1, "admit": 1}
    assert metrics.numbers()["refused"] == 3


def test_gauges_are_asked_for_each_time() -> None:
    now: dict[str, Any] = {"connections": 1}
    exposition = PrometheusPage("b1", Metrics(), lambda: Gauges(**now, certificate_expires=1e9))
    assert samples(exposition)["tidings_connections", ()] == 1
    now["connections"] = 2
    found = samples(exposition)
    assert found["tidings_connections", ()] == 2
    assert found["tidings_certificate_expiry_timestamp_seconds", ()] == 1e9


def test_every_number_is_on_the_page() -> None:
    """A counter or gauge that is added and forgotten on the page would change nothing there."""
    for group, name in [(group, name) for group, counters in vars(Metrics()).items() for name in vars(counters)]:
        metrics = Metrics()
        before = samples(PrometheusPage("b1", metrics, Gauges))
        counters = getattr(metrics, group)
        value = getattr(counters, name)
        if isinstance(value, Durations):
            value.record(1.0)
        elif isinstance(value, dict):
            value["step"] = 1
        else:
            setattr(counters, name, 1)
        after = samples(PrometheusPage("b1", metrics, Gauges))
        changed = {key for key in after if after[key] != before.get(key) and key[0].startswith("tidings_")}
        assert changed, name
    numbers = [Gauges(**{name: 77}) for name in Gauges.__struct_fields__ if name != "security"]  # type: ignore[arg-type]
    numbers += [
        Gauges(security=SecurityGauges(**{name: {"proof": 77} if name == "refused" else 77}))  # type: ignore[arg-type]
        for name in SecurityGauges.__struct_fields__
    ]
    for gauges in numbers:
        found = samples(PrometheusPage("b1", Metrics(), lambda gauges=gauges: gauges))  # type: ignore[misc]
        assert [value for (key, _), value in found.items() if key.startswith("tidings_")].count(77) == 1, gauges


@examples(100, 5_000)
@given(st.lists(st.tuples(st.floats(-1, 20), st.integers(1, 5))))
def test_buckets_hold_what_took_up_to_their_bound(noted: list[tuple[float, int]]) -> None:
    metrics = Metrics()
    for seconds, times in noted:
        metrics.operations.commits.record(seconds, times)
    found = samples(PrometheusPage("b1", metrics, Gauges))
    for bound in BOUNDS:
        expected = sum(times for seconds, times in noted if seconds <= bound)
        assert found["tidings_journal_commit_seconds_bucket", (("le", str(bound)),)] == expected
    assert found["tidings_journal_commit_seconds_count", ()] == sum(times for _, times in noted)
    total = sum(max(seconds, 0) * times for seconds, times in noted)
    assert abs(found["tidings_journal_commit_seconds_sum", ()] - total) < 1e-6


def test_the_registry_of_the_process_is_left_alone() -> None:
    before = {family.name for family in REGISTRY.collect()}
    PrometheusPage("b1", Metrics(), Gauges).page()
    assert {family.name for family in REGISTRY.collect()} == before
    assert not any(name.startswith("tidings") for name in before)


def test_openmetrics_is_written_for_those_who_ask() -> None:
    exposition = PrometheusPage("b1", Metrics(), Gauges)
    page, media_type = exposition.page("application/openmetrics-text; version=1.0.0")
    assert media_type.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")
