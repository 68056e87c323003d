"""The keys for what a server tells monitoring: stock's metrics keys, which every server has
here."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from rocketmq_tw.config.base import Config, Format, HostName, Port
from rocketmq_tw.config.values import choice

DISABLED, PROMETHEUS = "DISABLE", "PROM"

#: What Prometheus puts in by itself, of histograms and summaries.
_PROMETHEUS_OWN = ("le", "quantile")

_OF_REQUESTS = frozenset(
    {"is_long_polling", "protocol_type", "request_code", "response_code", "result"}
)
_OF_MEMBERS = frozenset({"cluster", "node_id", "node_type"})
#: By kind of server, the labels that its figures have of their own: with another one of that name
#: a figure would be taken for another.
OWN_LABELS: Mapping[str, frozenset[str]] = {
    "name server": _OF_REQUESTS | {"node_type"},
    "broker": _OF_REQUESTS
    | _OF_MEMBERS
    | {
        "consume_mode",
        "consumer_group",
        "invocation_status",
        "is_retry",
        "is_system",
        "language",
        "message_type",
        "put_status",
        "queue_id",
        "revive_message_type",
        "storage_medium",
        "storage_type",
        "timer_bound_s",
        "topic",
        "version",
    },
    "controller": _OF_REQUESTS
    | {
        "address",
        "broker_set",
        "cluster",
        "dledger_operation",
        "dLedger_operation_status",
        "election_result",
        "group",
        "peer_id",
        "request_handle_status",
        "request_type",
    },
    "proxy": _OF_REQUESTS | _OF_MEMBERS | {"proxy_mode"},
}


def check_labels(labels: Iterable[str], kinds: Iterable[str]) -> None:
    """Raises `ValueError` where figures of the servers of a process, which are of these kinds, have
    one of the labels already."""
    for kind in kinds:
        taken = next((label for label in labels if label in OWN_LABELS[kind]), "")
        if taken:
            raise ValueError(f"figures of a {kind} have a label {taken} already: give another name")


class MonitoringConfig(Config, frozen=True):
    """Whether Prometheus may ask this server, and where. Stock also pushes to OpenTelemetry
    collectors (OTLP_GRPC) and writes a log of its own (LOG), which are not supported here: every
    server logs its figures every ten minutes."""

    #: PROM: metrics and health are served over HTTP.
    metrics_exporter_type: Annotated[str, Format(choice(DISABLED, PROMETHEUS))] = DISABLED
    metrics_prom_exporter_port: Port = 5557
    #: The address that is listened on. Stock takes the broker's own address where none is given.
    metrics_prom_exporter_host: HostName = "127.0.0.1"
    #: Labels of every figure: `name:value`, several with `,` between them.
    metrics_label: Annotated[str, Format(lambda text: _labels(text))] = ""

    @property
    def is_enabled(self) -> bool:
        """Whether the HTTP port is opened."""
        return self.metrics_exporter_type == PROMETHEUS

    @property
    def labels(self) -> dict[str, str]:
        """`metricsLabel` by name."""
        return dict(_pairs(self.metrics_label))


def _labels(text: str) -> str:
    pairs = _pairs(text)
    for number, (name, value) in enumerate(pairs):
        if not (name.isascii() and name.isidentifier() and value):
            raise ValueError(
                "give name:value, several with ',' between them; a name has letters, digits and _"
            )
        if name in _PROMETHEUS_OWN or name.startswith("__"):
            raise ValueError(f"figures have a label {name} already: give another name")
        if name in dict(pairs[:number]):
            raise ValueError(f"the label {name} is given twice: give each name once")
    return text.strip()


def _pairs(text: str) -> list[tuple[str, str]]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [(name.strip(), value.strip()) for name, _, value in (p.partition(":") for p in parts)]
