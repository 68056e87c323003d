"""What stock's broker tells Prometheus comes from ours too, under the same names and labels
(docs/monitoring.md)."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import NEW
from tests.support.ports import ReservedPort
from tests.support.wait import PeerFailed, wait_until

TOPIC, GROUP = "Orders", "billing"
MESSAGES = 4
#: Figures of how stock's broker is built, for which docs/monitoring.md names others.
OF_STOCK_ALONE = (
    "rocketmq_pop_buffer_scan_time_consume_milliseconds",
    "rocketmq_pop_checkpoint_buffer_size",
    "rocketmq_pop_offset_buffer_size",
    "rocketmq_processor_watermark",
)
#: A label that stock's library gives every figure, and figures of the library itself.
OF_LIBRARY = "otel_scope_name"
_LEFT_OUT = (*OF_STOCK_ALONE, "otel_scope_info", "target_info")
#: What has a value only once messages were read, stored and counted: the last ones to come.
LAST = {
    "rocketmq_messages_in_total",
    "rocketmq_messages_out_total",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_connections",
    "rocketmq_producer_connections",
    "rocketmq_storage_size_bytes",
}
#: A figure's name and the names of its labels.
Figure = tuple[str, frozenset[str]]


def figures(port: int) -> set[Figure]:
    """The figures that a broker tells at a port of this machine."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels) - {OF_LIBRARY})
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told_under_load(
    java: JavaClients, kind: str, home: Path, wanted: Collection[Figure] = ()
) -> set[Figure]:
    """The figures of a broker of this kind with a producer, messages at once and later, and a
    consumer that gives each back once: when what is `wanted` is there and no new ones come."""
    with ExitStack() as ends:
        names = ends.enter_context(make_name_server(kind, home / "namesrv"))
        port = ReservedPort()
        ends.callback(port.release)
        settings = {
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": str(port.number),
            "metricsPromExporterHost": "127.0.0.1",
            "timerWheelEnable": "true",
        }
        broker = make_broker(kind, "broker-a", home / "broker", [names], settings=settings)
        ends.enter_context(broker)
        java.create_topic(names.address, broker.address, TOPIC, 2)
        wait_until(lambda: names.routes(TOPIC, [broker]), "the route")
        ends.enter_context(java.consumer(names.address, GROUP, {TOPIC: "*"}, failTimes=1))
        producer = ends.enter_context(java.producer(names.address, "shop"))
        for number in range(MESSAGES):
            producer.send({"topic": TOPIC, "body": f"order {number}"}, queue=number % 2)
        producer.send({"topic": TOPIC, "body": "later", "delayLevel": 1})
        before: set[Figure] = set()

        def complete() -> set[Figure]:
            found = figures(port.number)
            missing = LAST - {name for name, _ in found}
            missing |= {f"{name}{sorted(labels)}" for name, labels in set(wanted) - found}
            more = found - before
            before.update(found)
            if missing or more:
                raise PeerFailed(f"no {sorted(missing)}, new in this round: {more}")
            return found

        return wait_until(complete, "all figures", interval=2)


def test_a_broker_tells_prometheus_what_stocks_does(
    jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    java = jvms[NEW]
    stock = told_under_load(java, NEW, tmp_path / "stock")
    wanted = {figure for figure in stock if not figure[0].startswith(_LEFT_OUT)}
    assert len(wanted) > 30
    assert told_under_load(java, OURS, tmp_path / "ours", wanted) >= wanted
