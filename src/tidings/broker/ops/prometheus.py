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

# The name of each gauge, with its field of `Gauges` and its description.
_GAUGES = {
    "connections": ("connections", "Clients and neighbours that are connected."),
    "subscriptions": ("subscriptions", "Subscriptions in the tables, of clients here and elsewhere."),
    "advertisements": ("advertisements", "Advertisements in the tables, of clients here and elsewhere."),
    "links": ("links", "Links that are up."),
    "links_configured": ("links_configured", "Links that should be up."),
    "journal_offset": ("journal_offset", "The number of records that were appended to the journal."),
    "journal_synced_offset": ("journal_synced_offset", "The number of journal records that are synced to the disk."),
    "journal_bytes": ("journal_bytes", "The size of the journal on the disk."),
    "unsettled_publications": ("unsettled", "Publications that have not reached every broker that they are for."),
    "queue_bytes": ("queue_bytes", "Bytes that wait to be sent to clients and neighbours."),
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
            "tidings_journal_commit_seconds", "How long commits of the journal took.", self._metrics.operations.commits
        )
        yield _histogram(
            "tidings_delivery_seconds",
            "The time from accepting a publication to giving it to a client.",
            self._metrics.operations.delivered_after,
        )
        gauges = self._gauges()
        for name, (field, description) in _GAUGES.items():
            yield GaugeMetricFamily(f"tidings_{name}", description, getattr(gauges, field))
        description = "Log lines that were dropped because the queue of the log was full."
        yield CounterMetricFamily("tidings_log_lines_dropped", description, gauges.log_lines_dropped)
        if gauges.certificate_expires is not None:
            yield GaugeMetricFamily(
                "tidings_certificate_expiry_timestamp_seconds",
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
                "Publications of clients that were accepted, by whether they were new.",
                "outcome",
                {"accepted": metrics.operations.accepted, "repeated": metrics.operations.repeated},
            ),
            (
                "refusals",
                "Requests and publications that were refused, by the step that refused them.",
                "step",
                refused,
            ),
            (
                "network_bytes",
                "Bytes from and to clients and neighbours.",
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
            ("notifications", "Notifications that were sent to clients.", metrics.operations.delivered),
            (
                "notifications_dropped",
                "Notifications that were dropped because their subscriber was slow.",
                metrics.operations.lost,
            ),
            (
                "slow_consumer_disconnections",
                "Clients that were disconnected because their queue stayed full.",
                metrics.traffic.slow_disconnected,
            ),
            (
                "framing_errors",
                "Connections that were closed because a frame was malformed.",
                metrics.traffic.broken_connections,
            ),
            ("decoding_errors", "Frames whose content could not be decoded.", metrics.traffic.misunderstood),
            ("challenges", "Challenges that were sent to clients and neighbours.", metrics.security.challenges),
            (
                "challenge_failures",
                "Challenges that were answered too late or wrongly.",
                metrics.security.challenges_failed,
            ),
            ("authentication_failures", "Handshakes, proofs and tokens that were refused.", metrics.security.bogus),
            (
                "connection_rejections",
                "Connections that were closed at once, after too many authentication failures from their host.",
                metrics.security.shut_out,
            ),
            ("meta_events", "Meta-events that the broker published.", metrics.operations.told),
        ):
            yield CounterMetricFamily(f"tidings_{name}", description, value)


def _of_security(gauges: SecurityGauges) -> Iterator[Metric]:
    description = "Events and tokens that the gate refused, by the check that failed."
    yield _counter("security_refusals", description, "check", gauges.refused)
    for name, description, value in (
        ("secure_topics", "Secure topics that the broker knows.", gauges.topics),
        (
            "revocation_list_version",
            "The number of entries of the revocation list; -1 without a list.",
            gauges.revocations,
        ),
        (
            "revocation_list_issued_timestamp_seconds",
            "When the revocation list was issued, in seconds since 1970.",
            gauges.revocations_issued,
        ),
        (
            "revocation_list_expiry_timestamp_seconds",
            "When the revocation list expires, in seconds since 1970; after it nothing is trusted.",
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
