"""The Prometheus page of a broker's metrics and gauges."""

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tidings._version import __version__
from tidings.broker.metrics import BOUNDS, Durations, Gauges, Metrics, SecurityGauges

_GAUGES = {
    "connections": "Clients and neighbours that are connected.",
    "subscriptions": "Subscriptions in the tables, of clients here and elsewhere.",
    "advertisements": "Advertisements in the tables, of clients here and elsewhere.",
    "links": "Links that are up.",
    "links_configured": "Links that should be up.",
    "journal_offset": "The number of records that were appended to the journal.",
    "journal_synced_offset": "The number of records that are on the disk for certain.",
    "journal_bytes": "The size of the journal on the disk.",
    "unsettled": "Publications that have not reached every broker that they are for.",
    "queue_bytes": "What waits for clients and neighbours to take it.",
}


class PrometheusPage(Collector):
    """A Prometheus collector for one broker, with a registry of its own."""

    def __init__(self, broker: str, metrics: Metrics, gauges: Callable[[], Gauges]) -> None:
        self._broker, self._metrics, self._gauges = broker, metrics, gauges
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)  # memory, processor time, open files

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page and its media type, in the format that the Accept header asks for."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the broker."""
        yield InfoMetricFamily("tidings", "Which broker this is.", {"broker": self._broker, "version": __version__})
        yield from self._counters()
        yield _histogram(
            "tidings_commit_seconds", "How long commits of the journal took.", self._metrics.operations.commits
        )
        yield _histogram(
            "tidings_delivery_seconds",
            "The time from accepting a publication to giving it to a client.",
            self._metrics.operations.delivered_after,
        )
        gauges = self._gauges()
        for name, description in _GAUGES.items():
            yield GaugeMetricFamily(f"tidings_{name}", description, getattr(gauges, name))
        description = "Lines of the log that there was no room for."
        yield CounterMetricFamily("tidings_log_lines_dropped", description, gauges.log_lines_dropped)
        if gauges.certificate_expires is not None:
            yield GaugeMetricFamily(
                "tidings_certificate_expires_seconds",
                "When the broker's certificate expires, in seconds since 1970.",
                gauges.certificate_expires,
            )
        if gauges.security is not None:
            yield from _of_security(gauges.security)

    def _counters(self) -> Iterator[Metric]:
        metrics = self._metrics
        refused = dict(metrics.operations.refused)
        for name, description, label, values in (
            (
                "publications",
                "Publications of clients that were taken, by whether they were new.",
                "outcome",
                {"accepted": metrics.operations.accepted, "repeated": metrics.operations.repeated},
            ),
            ("refused", "What clients asked for and did not get, by the step that refused it.", "step", refused),
            (
                "bytes",
                "Bytes from and to all.",
                "direction",
                {"in": metrics.traffic.bytes_in, "out": metrics.traffic.bytes_out},
            ),
            (
                "link_messages",
                "Messages from and to neighbours.",
                "direction",
                {"in": metrics.traffic.link_messages_in, "out": metrics.traffic.link_messages_out},
            ),
        ):
            yield _counter(name, description, label, values)
        for name, description, value in (
            ("deliveries", "Notifications given to clients.", metrics.operations.delivered),
            ("lost", "Notifications that slow consumers lost.", metrics.operations.lost),
            (
                "slow_disconnected",
                "Connections closed as their queue stayed full.",
                metrics.traffic.slow_disconnected,
            ),
            (
                "broken_connections",
                "Connections that were closed, as what came was no frame.",
                metrics.traffic.broken_connections,
            ),
            ("misunderstood", "Frames that could not be understood.", metrics.traffic.misunderstood),
            ("challenges", "Challenges to clients and neighbours.", metrics.security.challenges),
            ("challenges_failed", "Challenges that were not answered, or wrongly.", metrics.security.challenges_failed),
            ("bogus", "Handshakes, proofs and tokens that were refused.", metrics.security.bogus),
            ("shut_out", "Connections closed at once, after too many of these.", metrics.security.shut_out),
            ("meta_events", "Meta-events that were told.", metrics.operations.told),
        ):
            yield CounterMetricFamily(f"tidings_{name}", description, value)


def _of_security(gauges: SecurityGauges) -> Iterator[Metric]:
    description = "What the gate did not let through, by the check that was not passed."
    yield _counter("refused_untrusted", description, "check", gauges.refused)
    for name, description, value in (
        ("secure_topics", "Secure topics that are known.", gauges.topics),
        ("revocations_version", "How many entries the list of revocations has; -1: there is none.", gauges.revocations),
        (
            "revocations_issued_seconds",
            "When the list of revocations was issued, in seconds since 1970.",
            gauges.revocations_issued,
        ),
        (
            "revocations_expire_seconds",
            "From when on nothing is trusted without a newer list, in seconds since 1970.",
            gauges.revocations_expire,
        ),
    ):
        yield GaugeMetricFamily(f"tidings_{name}", description, value)


def _counter(name: str, description: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(f"tidings_{name}", description, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family


def _histogram(name: str, description: str, durations: Durations) -> Metric:
    bounds = [*(str(bound) for bound in BOUNDS), "+Inf"]
    buckets = list(zip(bounds, accumulate(durations.counts), strict=True))
    return HistogramMetricFamily(name, description, buckets=buckets, sum_value=durations.total)
