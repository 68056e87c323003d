"""What a server tells monitoring: stock's metrics keys, which every server has here."""

from typing import Annotated

from rocketmq_tw.config.base import Config, Format, HostName, Port
from rocketmq_tw.config.values import choice

DISABLED, PROMETHEUS = "DISABLE", "PROM"

#: Labels that figures have of their own: a figure that leaves one out would be taken for another.
#: `le` and `quantile` are Prometheus' own.
OWN_LABELS = frozenset(
    {
        "address",
        "broker_set",
        "cluster",
        "consume_mode",
        "consumer_group",
        "dledger_operation",
        "dLedger_operation_status",
        "election_result",
        "group",
        "invocation_status",
        "is_long_polling",
        "is_retry",
        "is_system",
        "language",
        "le",
        "message_type",
        "node_id",
        "node_type",
        "peer_id",
        "protocol_type",
        "proxy_mode",
        "put_status",
        "quantile",
        "queue_id",
        "request_code",
        "request_handle_status",
        "request_type",
        "response_code",
        "result",
        "revive_message_type",
        "storage_medium",
        "storage_type",
        "timer_bound_s",
        "topic",
        "version",
    }
)


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
    for name, value in _pairs(text):
        if not (name.isascii() and name.isidentifier() and value):
            raise ValueError(
                "give name:value, several with ',' between them; a name has letters, digits and _"
            )
        if name in OWN_LABELS or name.startswith("__"):
            raise ValueError(f"figures have a label {name} already: give another name")
    return text.strip()


def _pairs(text: str) -> list[tuple[str, str]]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [(name.strip(), value.strip()) for name, _, value in (p.partition(":") for p in parts)]
