"""Stock's TransactionMQProducer against our broker, and stores that change hands in the middle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_tw.broker.transactions.halves import settled_offsets
from rocketmq_tw.message.record import RecordError, decode_record
from tests.support.cluster import Cluster, make_broker
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients, Json, TransactionProducer
from tests.support.ports import BrokerPorts
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.wait import wait_until

#: ms by which a question may be late, since a busy machine's clients are. How soon brokers ask is
#: shown in memory, in tests/unit/broker/transactions.
LATE_MS = 30_000
#: Soon enough for a test, and late enough to be told from at once.
TIME_OUT_MS = 2_000
INTERVAL_MS = 3_000
SETTINGS = {
    "transactionTimeOut": str(TIME_OUT_MS),
    "transactionCheckInterval": str(INTERVAL_MS),
    "transactionCheckMax": "3",
    # Stock 5.x asks again about what it has decided and not noted yet.
    "transactionOpBatchInterval": "1",
}


@pytest.fixture(scope="module")
def quick(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker of ours that asks back soon."""
    home = tmp_path_factory.mktemp("transactions")
    with Cluster.of(home, name_servers=[servers], brokers=[servers], settings=SETTINGS) as started:
        yield started


def message(topic: str, body: str, decide: str = "", answer: str = "", **more: object) -> Json:
    properties = {"decide": decide or "later", "answer": answer or "later"}
    own = more.pop("properties", {})
    assert isinstance(own, dict)
    return {"topic": topic, "body": body, "properties": properties | own, **more}


def topic_of(java: JavaClients, cluster: Cluster, topic: str) -> str:
    java.create_topic(cluster.namesrv, cluster.brokers[0].address, topic, 1)
    wait_until(lambda: cluster.name_servers[0].routes(topic, [cluster.brokers[0]]), "the route")
    return topic


def test_decisions(java: JavaClients, quick: Cluster, names) -> None:
    topic, group = topic_of(java, quick, names.topic), names.group
    with (
        java.puller(quick.namesrv) as puller,
        java.transactions(quick.namesrv, group) as producer,
    ):
        producer.send(
            message(topic, "at once", "commit", tags="a", keys="k"),
            message(topic, "never", "rollback"),
            message(topic, "asked", answer="commit"),
            message(topic, "asked and never", answer="rollback"),
        )
        came = puller.wait_drained(topic, 2)
        assert Counter(each["body"] for each in came) == {"at once": 1, "asked": 1}
        first = next(each for each in came if each["body"] == "at once")
        assert (first["tags"], first["keys"]) == ("a", "k")
        wait_until(lambda: len(producer.asked()) >= 2, "both questions")
        asked = producer.asked()
        assert {each["body"] for each in asked} == {"asked", "asked and never"}
        for each in asked:
            late = each["at"] - each["born"] - TIME_OUT_MS
            assert -50 <= late < LATE_MS, f"asked {late} ms after it was due"
            assert each["topic"] == topic
            assert each["transactionId"] == each["properties"]["UNIQ_KEY"]


def test_asked_again_and_given_up(java: JavaClients, quick: Cluster, names) -> None:
    topic, group = topic_of(java, quick, names.topic), names.group
    with (
        java.puller(quick.namesrv) as puller,
        java.transactions(quick.namesrv, group) as producer,
    ):
        (sent,) = producer.send(message(topic, names.new("given up")))
        given_up = wait_until(
            lambda: [
                each
                for each in puller.drain("TRANS_CHECK_MAX_TIME_TOPIC")
                if each["properties"]["UNIQ_KEY"] == sent["msgId"]
            ],
            "it to be given up",
        )
        times = [each["at"] - each["born"] for each in producer.asked()]
        assert len(times) == len(given_up) * 3
        for number, at in enumerate(times):
            due = TIME_OUT_MS + number * INTERVAL_MS
            assert due - 50 <= at < due + LATE_MS, times
        assert not puller.drain(topic)


def test_a_producer_that_is_gone(java: JavaClients, quick: Cluster, names) -> None:
    """Another one of its group is asked."""
    topic, group = topic_of(java, quick, names.topic), names.group
    with (
        java.puller(quick.namesrv) as puller,
        java.transactions(quick.namesrv, group) as other,
    ):
        gone = java.transactions(quick.namesrv, group)
        # A producer speaks to the brokers of topics that it has sent to.
        other.send(message(topic, "its own", "commit"))
        gone.send(message(topic, "left behind", answer="commit"))
        gone.stop()
        came = puller.wait_drained(topic, 2)
        assert Counter(each["body"] for each in came) == {"its own": 1, "left behind": 1}
        assert "left behind" in {each["body"] for each in other.asked()}


def test_a_time_of_its_own(java: JavaClients, quick: Cluster, names) -> None:
    topic, group = topic_of(java, quick, names.topic), names.group
    with (
        java.puller(quick.namesrv) as puller,
        java.transactions(quick.namesrv, group) as producer,
    ):
        producer.send(
            message(
                topic,
                "later",
                answer="commit",
                properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "5"},
            )
        )
        puller.wait_drained(topic, 1)
        # The first question; a second one may overtake the answer on a busy machine.
        asked = producer.asked()[0]
        assert 4_950 <= asked["at"] - asked["born"] < 5_000 + LATE_MS


@pytest.fixture
def name_server(cluster: Cluster) -> NameServerProcess:
    return cluster.name_servers[0]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(BrokerProcess.stop, id="stop", marks=pytest.mark.more),
        pytest.param(BrokerProcess.kill, id="kill"),
    ],
)
@pytest.mark.parametrize("stock", STOCK_VERSIONS)
@pytest.mark.parametrize("ours_first", [True, False], ids=["ours-first", "stock-first"])
def test_a_store_changes_hands_with_messages_that_wait(
    end: Callable[[BrokerProcess], None],
    stock: str,
    ours_first: bool,
    servers: str,
    jvms: dict[str, JavaClients],
    name_server: NameServerProcess,
    tmp_path: Path,
    names,
) -> None:
    """The second broker asks about what waits, and not about what is decided."""
    java = jvms[stock]
    topic, group, name = names.topic, names.group, names.new("handed-over")
    ports, store = BrokerPorts(), tmp_path / "store"
    kinds = [servers, stock] if ours_first else [stock, servers]
    # The first broker asks about nothing.
    patient = SETTINGS | {"transactionTimeOut": "600000"}
    first, second = (
        make_broker(
            kind,
            name,
            tmp_path / str(number),
            [name_server],
            store=store,
            ports=ports,
            settings=settings,
        )
        for number, (kind, settings) in enumerate(zip(kinds, (patient, SETTINGS), strict=True))
    )
    try:
        with java.puller(name_server.address) as puller:
            first.start()
            java.create_topic(name_server.address, first.address, topic, 1)
            wait_until(lambda: name_server.routes(topic, [first]), "the route")
            with java.transactions(name_server.address, group) as producer:
                _fill(producer, topic)
                puller.wait_drained(topic, 1)
                _wait_for_ops(first, 2)
                end(first)
                second.start()
                came = puller.wait_drained(topic, 2)
                wait_until(
                    lambda: (
                        {each["body"] for each in producer.asked()} >= {"asked", "asked and never"}
                    ),
                    "both questions",
                )
                assert {each["body"] for each in producer.asked()} == {"asked", "asked and never"}
            assert Counter(each["body"] for each in came) == {"at once": 1, "asked": 1}
    finally:
        first.close()
        second.close()


def _fill(producer: TransactionProducer, topic: str) -> None:
    producer.send(
        message(topic, "at once", "commit"),
        message(topic, "asked", answer="commit"),
        message(topic, "never", "rollback"),
        message(topic, "asked and never", answer="rollback"),
    )


def _wait_for_ops(broker: BrokerProcess, settled: int) -> None:
    """Until the op messages in the broker's log name so many half messages."""

    def all_named() -> bool:
        try:
            found = [
                decode_record(record)
                for record in log_records(broker.store)
                if b"RMQ_SYS_TRANS_OP_HALF_TOPIC" in record
            ]
        except RecordError:
            # The last one is being written.
            return False
        return sum(len(settled_offsets(op)) for op in found) >= settled

    wait_until(all_named, "the op messages")


def log_records(store: Path) -> Iterator[bytes]:
    """The records of a log as it is on disk now."""
    for path in sorted((store / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while (size := int.from_bytes(data[at : at + 4], "big")) > 8:
            yield data[at : at + size]
            at += size
