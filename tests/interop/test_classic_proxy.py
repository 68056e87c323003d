"""Stock's clients of both versions, which have a proxy of ours for name server and broker, before
a cluster of ours and of stock's, and in the process of a broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import OURS, Cluster, make_name_server
from tests.support.java_client import JavaClients, Json
from tests.support.proxies import BrokerWithProxy, OurProxy
from tests.support.wait import wait_until

NEWEST = "5.3.3"
SETTINGS = {
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "3000",
    # Stock's broker would ask once more about what it has not noted yet as decided.
    "transactionOpBatchInterval": "1",
    "recallMessageEnable": "true",
    "timerWheelEnable": "true",
}


class Site:
    """A cluster, the address of the proxy that clients know, and the clients of one version."""

    def __init__(self, cluster: Cluster, address: str, java: JavaClients) -> None:
        self.cluster = cluster
        self.address = address
        self.java = java

    def topic(self, topic: str, queues: int = 4) -> str:
        return self.cluster.create_topic(self.java, topic, queues=queues)


@contextmanager
def _cluster_and_proxy(kind: str, home: Path) -> Iterator[tuple[Cluster, str]]:
    with (
        Cluster.of(home, name_servers=[kind], brokers=[kind], settings=SETTINGS) as cluster,
        OurProxy(home / "proxy", cluster.namesrv) as proxy,
    ):
        yield cluster, proxy.ports.classic


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    """A broker of ours and a proxy before it."""
    with _cluster_and_proxy(OURS, tmp_path_factory.mktemp("cluster-mode")) as site:
        yield site


@pytest.fixture(scope="module")
def before_stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    """A broker of stock's and a proxy of ours before it."""
    with _cluster_and_proxy(NEWEST, tmp_path_factory.mktemp("before-stock")) as site:
        yield site


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    """A broker of ours with a proxy in its process."""
    home = tmp_path_factory.mktemp("local-mode")
    names = make_name_server(OURS, home / "namesrv")
    broker = BrokerWithProxy("broker-a", home / "broker", [names], settings=SETTINGS)
    with Cluster([names], [broker]) as cluster:
        yield cluster, broker.proxy_ports.classic


def _site(request: pytest.FixtureRequest, jvms: dict[str, JavaClients]) -> Site:
    version, place = request.param
    cluster, address = request.getfixturevalue(place)
    return Site(cluster, address, jvms[version])


#: All that a version of the clients can.
site = pytest.fixture(
    params=[
        ("4.9.7", "before"),
        ("4.9.7", "inside"),
        (NEWEST, "before"),
        (NEWEST, "inside"),
        # Stock's servers cost most, and stay to the end.
        ("4.9.7", "before_stock"),
        (NEWEST, "before_stock"),
    ],
    name="site",
)(_site)
#: The same for what takes half a minute.
slow_site = pytest.fixture(
    params=[
        ("4.9.7", "before"),
        pytest.param(("4.9.7", "inside"), marks=pytest.mark.more),
        (NEWEST, "before"),
        (NEWEST, "inside"),
        pytest.param((NEWEST, "before_stock"), marks=pytest.mark.more),
    ],
    name="slow_site",
)(_site)
#: What clients of 5.x can.
newest = pytest.fixture(
    params=[(NEWEST, "before"), (NEWEST, "inside"), (NEWEST, "before_stock")], name="newest"
)(_site)


def _messages(topic: str, bodies: list[str], **more: Any) -> list[Json]:
    return [{"topic": topic, "body": body, **more} for body in bodies]


def test_sends_of_all_kinds_are_consumed(site: Site, names) -> None:
    topic = site.topic(names.topic)
    with (
        site.java.producer(site.address) as producer,
        site.java.consumer(site.address, names.group, {topic: "wanted"}) as consumer,
    ):
        (sent,) = producer.send(*_messages(topic, ["sync"], tags="wanted", keys="k"))
        assert sent["broker"] == site.cluster.broker.name
        producer.send(*_messages(topic, ["other"], tags="unwanted"))
        producer.send(*_messages(topic, ["async-0", "async-1"], tags="wanted"), mode="async")
        producer.send(*_messages(topic, ["oneway"], tags="wanted"), mode="oneway")
        producer.send(*_messages(topic, ["batch-0", "batch-1"], tags="wanted"), mode="batch")
        large = {"topic": topic, "size": 1_000_000, "seed": 7, "tags": "wanted"}
        producer.send(large)
        received = consumer.received(7)
    bodies = {message.get("body") for message in received}
    assert {"sync", "async-0", "async-1", "oneway", "batch-0", "batch-1"} <= bodies
    assert "other" not in bodies


def test_a_group_goes_on_where_it_was_and_takes_back_what_failed(site: Site, names) -> None:
    topic, group = site.topic(names.topic), names.group
    with site.java.producer(site.address) as producer:
        producer.send(*_messages(topic, [f"early-{number}" for number in range(10)]))
        consumer = site.java.consumer(site.address, group, {topic: "*"}, failTimes=1)
        with consumer:
            # Each failed once and came back by way of the retry topic.
            assert len(consumer.received(20)) == 20
            consumer.stop()
        producer.send(*_messages(topic, ["late"]))
        with site.java.consumer(site.address, group, {topic: "*"}) as consumer:
            assert consumer.bodies(1) == ["late"]


def test_members_behind_the_proxy_and_beside_it_share_queues(site: Site, names) -> None:
    topic, group = site.topic(names.topic), names.group
    with (
        site.java.consumer(site.address, group, {topic: "*"}, orderly=True) as behind,
        site.java.consumer(site.cluster.namesrv, group, {topic: "*"}, orderly=True) as beside,
        site.java.producer(site.address) as producer,
    ):

        def shared() -> bool:
            held = [
                {queue["queue"] for queue in consumer.assigned() if queue["topic"] == topic}
                for consumer in (behind, beside)
            ]
            return [len(queues) for queues in held] == [2, 2] and not held[0] & held[1]

        wait_until(shared, "two queues for each", interval=0.1)
        for number in range(8):
            producer.send(*_messages(topic, [f"{number}"]), queue=number % 4)
        wait_until(
            lambda: len(behind.received()) == len(beside.received()) == 4, "four messages for each"
        )
        assert sorted(behind.bodies() + beside.bodies()) == [str(number) for number in range(8)]


def test_a_broadcast_comes_to_each_member(site: Site, names) -> None:
    topic, group = site.topic(names.topic), names.group
    with (
        site.java.consumer(site.address, group, {topic: "*"}, broadcast=True) as first,
        site.java.consumer(site.address, group, {topic: "*"}, broadcast=True) as second,
        site.java.producer(site.address) as producer,
    ):

        def are_assigned() -> bool:
            queues = [
                [queue for queue in consumer.assigned() if queue["topic"] == topic]
                for consumer in (first, second)
            ]
            return [len(held) for held in queues] == [4, 4]

        wait_until(are_assigned, "all queues for each")
        bodies = [str(number) for number in range(8)]
        producer.send(*_messages(topic, bodies))
        for consumer in (first, second):
            assert sorted(consumer.bodies(8)) == bodies


def test_pulls_and_offsets(site: Site, names) -> None:
    topic = site.topic(names.topic, queues=1)
    with site.java.producer(site.address) as producer:
        producer.send(*_messages(topic, ["a", "b", "c"]), queue=0)
    with site.java.puller(site.address, names.group) as puller:
        (queue,) = puller.queues(topic)
        pulled = puller.pull(queue, 1)
        assert [message["body"] for message in pulled["messages"]] == ["b", "c"]
        assert puller.pull(queue, 3)["status"] == "NO_NEW_MSG"
        assert (puller.min_offset(queue), puller.max_offset(queue)) == (0, 3)
        assert puller.search_offset(queue, 0) == 0
        puller.commit(queue, 2)
        wait_until(lambda: puller.committed(queue) == 2, "the offset to be committed")


def test_transactions_and_what_the_broker_asks_about(site: Site, names) -> None:
    topic = site.topic(names.topic, queues=1)
    with (
        site.java.transactions(site.address, names.group) as producer,
        site.java.puller(site.address) as puller,
    ):
        for body, decide, answer in (
            ("committed", "commit", "rollback"),
            ("rolled back", "rollback", "commit"),
            ("asked", "later", "commit"),
        ):
            properties = {"decide": decide, "answer": answer}
            producer.send({"topic": topic, "body": body, "properties": properties})
        drained = puller.wait_drained(topic, 2)
        assert sorted(message["body"] for message in drained) == ["asked", "committed"]
        # Once more where a busy machine answers late.
        assert {message["body"] for message in producer.asked()} == {"asked"}


def test_tools_see_and_ask_consumers_behind_the_proxy(slow_site: Site, names) -> None:
    site = slow_site
    topic, group = site.topic(names.topic, queues=1), names.group
    namesrv = site.cluster.namesrv
    with (
        site.java.producer(site.address) as producer,
        site.java.consumer(site.address, group, {topic: "*"}) as consumer,
    ):
        producer.send(*_messages(topic, ["a", "b"]))
        consumer.received(2)
        for asked in (namesrv, site.address):
            found = site.java.admin(asked, "examineConsumerConnectionInfo", group)
            (connection,) = found["connectionSet"]
            client_id = connection["clientId"]
            info = site.java.admin(asked, "getConsumerRunningInfo", group, client_id, False)
            assert topic in str(info["mqTable"])
        # The broker tells the client (220), which begins again.
        site.java.mqadmin("resetOffsetByTime", "-n", namesrv, "-g", group, "-t", topic, "-s", "0")
        assert sorted(consumer.bodies(4)[2:]) == ["a", "b"]


def test_a_message_is_taken_back(newest: Site, names) -> None:
    topic = newest.topic(names.topic)
    late = {"topic": topic, "body": "late", "rawProperties": {"TIMER_DELAY_SEC": "3600"}}
    with newest.java.recaller(newest.address, names.group) as recaller:
        handle = recaller.send(late)
        assert recaller.recall(topic, handle)


def test_pops_and_acknowledgements(newest: Site, names) -> None:
    site = newest
    topic, group, broker = site.topic(names.topic), names.group, site.cluster.broker
    site.java.mqadmin(
        "updateSubGroup", "-n", site.cluster.namesrv, "-b", broker.address, "-g", group
    )
    with (
        site.java.producer(site.address) as producer,
        site.java.popper(site.address, group, broker.name, site.address) as popper,
    ):
        assert not popper.notified(topic)
        producer.send(*_messages(topic, ["a", "b", "c"]), queue=0)
        assert popper.notified(topic, poll=10_000)
        popped: list[Json] = []

        def all_popped() -> bool:
            popped.extend(popper.pop(topic, poll=2_000)["messages"])
            return len(popped) >= 3

        wait_until(all_popped, "three messages")
        first, second, third = popped
        assert popper.ack(first)["status"] == "OK"
        assert popper.ack_all(topic, [second])["status"] == "OK"
        popper.hide(third, 1)
        again = wait_until(
            lambda: popper.pop(topic, poll=5_000)["messages"], "the third one to come again"
        )
        assert [message["body"] for message in again] == ["c"]


def test_a_broker_that_is_gone_is_passed_over(jvms, names, tmp_path: Path) -> None:
    java = jvms[NEWEST]
    with (
        Cluster.numbered(tmp_path, [OURS, OURS]) as cluster,
        OurProxy(tmp_path / "proxy", cluster.name_servers[0].address) as proxy,
    ):
        topic = cluster.create_topic(java, names.topic)
        with (
            java.producer(proxy.ports.classic, retries=3) as producer,
            java.consumer(proxy.ports.classic, names.group, {topic: "*"}) as consumer,
        ):
            bodies = [str(number) for number in range(8)]
            sent = producer.send(*_messages(topic, bodies))
            assert {each["broker"] for each in sent} == {"broker-0", "broker-1"}
            consumer.wait_bodies(set(bodies))
            cluster.brokers[0].kill()
            rest = [f"late-{number}" for number in range(8)]
            sent = producer.send(*_messages(topic, rest))
            assert {each["broker"] for each in sent} == {"broker-1"}
            consumer.wait_bodies(set(rest))
