"""What stock's broker tells Prometheus comes from ours too, of the same types, under the same
names and labels; and Prometheus itself, as docs/monitoring.md starts it, has the dashboard's values
from it."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.figures import Figure, all_figures, exporter_keys, figures
from tests.support.jars import PROJECT
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import NEW
from tests.support.pages import block, typed
from tests.support.ports import ReservedPort
from tests.support.terminal import INTERRUPTED, Terminal
from tests.support.wait import PeerFailed, wait_until

TOPIC, GROUP = "Orders", "billing"
#: Gives messages back once, which are dead letters then.
DEAD = "disputes"
MESSAGES = 4
#: Of transactions; the last one stays a half message.
DECISIONS = ("commit", "rollback", "later")
#: Of timed messages: one comes, one waits.
DELAYS_MS = (1_500, 3_600_000)
#: Figures of how stock's broker is built, for which docs/monitoring.md names others.
OF_STOCK_ALONE = (
    "rocketmq_pop_buffer_scan_time_consume_milliseconds",
    "rocketmq_pop_checkpoint_buffer_size",
    "rocketmq_pop_offset_buffer_size",
    "rocketmq_processor_watermark",
)
#: What has a value only once messages were read, stored and counted: the last ones to come.
LAST = {
    "rocketmq_commit_messages_total",
    "rocketmq_delay_message_latency_seconds_count",
    "rocketmq_finish_message_latency_milliseconds_count",
    "rocketmq_half_messages",
    "rocketmq_rollback_messages_total",
    "rocketmq_send_to_dlq_messages_total",
    "rocketmq_timer_dequeue_total",
    "rocketmq_timer_enqueue_total",
    "rocketmq_timer_message_snapshot",
    "rocketmq_timing_messages",
    "rocketmq_messages_in_total",
    "rocketmq_messages_out_total",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_connections",
    "rocketmq_producer_connections",
    "rocketmq_storage_size_bytes",
}


def told_under_load(
    java: JavaClients, kind: str, home: Path, wanted: Collection[Figure] = ()
) -> set[Figure]:
    """The figures of a broker of this kind with producers, messages at once and later, of
    transactions and at a time, a consumer that gives each back once and one that gives it up: when
    what is `wanted` is there and no new ones come."""
    with ExitStack() as ends:
        names = ends.enter_context(make_name_server(kind, home / "namesrv"))
        port = ReservedPort()
        ends.callback(port.release)
        settings = exporter_keys(port) | {"timerWheelEnable": "true"}
        broker = make_broker(kind, "broker-a", home / "broker", [names], settings=settings)
        ends.enter_context(broker)
        java.create_topic(names.address, broker.address, TOPIC, 2)
        wait_until(lambda: names.routes(TOPIC, [broker]), "the route")
        ends.enter_context(java.consumer(names.address, GROUP, {TOPIC: "*"}, failTimes=1))
        given_up = java.consumer(
            names.address, DEAD, {TOPIC: "*"}, failTimes=1, maxReconsumeTimes=0
        )
        ends.enter_context(given_up)
        producer = ends.enter_context(java.producer(names.address, "shop"))
        for number in range(MESSAGES):
            producer.send({"topic": TOPIC, "body": f"order {number}"}, queue=number % 2)
        producer.send({"topic": TOPIC, "body": "later", "delayLevel": 1})
        for delay_ms in DELAYS_MS:
            timer = {"TIMER_DELAY_MS": delay_ms}
            producer.send({"topic": TOPIC, "body": "timed", "rawProperties": timer})
        transactions = ends.enter_context(java.transactions(names.address, "payments"))
        for decision in DECISIONS:
            properties = {"decide": decision, "answer": "later"}
            transactions.send({"topic": TOPIC, "body": "payment", "properties": properties})
        return all_figures(partial(figures, port.number), LAST, wanted)


def test_a_broker_tells_prometheus_what_stocks_does(
    jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    java = jvms[NEW]
    stock = told_under_load(java, NEW, tmp_path / "stock")
    wanted = {figure for figure in stock if not figure.name.startswith(OF_STOCK_ALONE)}
    assert len(wanted) > 45
    assert told_under_load(java, OURS, tmp_path / "ours", wanted) >= wanted


#: Sends and consumes until it is ended.
APPLICATION = """
from twisted.internet.task import deferLater, react

from rocketmq_tw.client.message import Message
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.push import PushConsumer


async def main(reactor):
    consumer = PushConsumer(reactor, ["127.0.0.1:9876"], "billing", lambda message: None)
    consumer.subscribe("Orders", "*")
    await consumer.start()
    producer = Producer(reactor, ["127.0.0.1:9876"], "shop")
    await producer.start()
    while True:
        await producer.send(Message("Orders", b"hello"))
        await deferLater(reactor, 0.2)


react(main)
"""
#: Of the dashboard, what has a value only where topics have transactions.
OF_TRANSACTIONS = {"Half messages"}


class Prometheus:
    """Asks the one that docs/monitoring.md starts at a terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def ask(self, what: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:9090/api/v1/{what}?{urlencode(parameters)}"
        program = f"from urllib.request import urlopen; print(urlopen({url!r}).read().decode())"
        return json.loads(self._terminal.type(shlex.join(["python", "-c", program])))["data"]

    def health(self) -> list[str]:
        return [target["health"] for target in self.ask("targets")["activeTargets"]]

    def rules(self) -> list[str]:
        """How each rule is doing."""
        return [rule["health"] for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def alerts(self) -> set[tuple[str, str]]:
        """The alerts that wait or fire, and which of both."""
        return {
            (each["labels"]["alertname"], each["state"]) for each in self.ask("alerts")["alerts"]
        }

    def values(self, expression: str) -> list[float]:
        found = self.ask("query", query=expression)["result"]
        return [float(each["value"][1]) for each in found]


def panels() -> Iterator[tuple[str, str]]:
    """The title and each question of the dashboard's panels."""
    board = json.loads((PROJECT / "etc" / "grafana" / "rocketmq.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here")
def test_promtool_takes_the_configuration_and_the_rules(tmp_path: Path) -> None:
    check, _ = typed(block("monitoring.md", "promtool"))
    with Terminal(tmp_path / "home") as terminal:
        assert "SUCCESS: 6 rules found" in terminal.type(check)


@pytest.mark.more
@pytest.mark.skipif(
    shutil.which("prometheus") is None,
    reason="no prometheus here: Debian's package of that name has it, and promtool",
)
def test_the_page_with_prometheus(tmp_path: Path) -> None:
    keys = block("monitoring.md", "metricsExporterType").text
    _, start = typed(block("monitoring.md", "promtool"))
    with Terminal(tmp_path / "home") as terminal:
        (terminal.checkout / "broker.properties").write_text(keys)
        terminal.begin("twistd -n --pidfile= rmq-namesrv")
        broker = terminal.begin(
            "twistd -n --pidfile= rmq-broker -c broker.properties -n 127.0.0.1:9876"
        )
        terminal.type_until("rmqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t Orders")
        terminal.begin(shlex.join(["python", "-c", APPLICATION]))
        terminal.begin(start)
        prometheus = Prometheus(terminal)
        wait_until(lambda: prometheus.health() == ["up"], "the broker to be up", interval=1)

        def shown() -> dict[str, list[float]]:
            found = {each: prometheus.values(each[1]) for each in panels()}
            empty = {title for (title, _), values in found.items() if not values}
            if not empty <= OF_TRANSACTIONS:
                raise PeerFailed(f"no values of {empty}")
            return {f"{title}: {question}": values for (title, question), values in found.items()}

        for question, values in wait_until(shown, "the panels' values", interval=3).items():
            print(question, values)
        # Rules are asked once a minute.
        wait_until(lambda: prometheus.rules() == ["ok"] * 6, "all rules to be asked", interval=3)
        assert prometheus.alerts() == set()
        terminal.interrupt(broker, status=INTERRUPTED)
        wait_until(
            lambda: prometheus.alerts() == {("RocketMQServerGone", "firing")},
            "the alert of a server that is gone",
            interval=5,
        )
