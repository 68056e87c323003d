"""Our servers and stock ones in one cluster: every broker at every name server, every client."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import OURS, Cluster
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients
from tests.support.wait import wait_until

KINDS = (OURS, *STOCK_VERSIONS)


@pytest.fixture(scope="module")
def mixed(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and a broker of each kind; each broker registers with all name servers."""
    kinds = KINDS if servers == OURS else STOCK_VERSIONS
    home = tmp_path_factory.mktemp("mixed")
    settings = {"registerNameServerPeriod": "10000"}
    with Cluster.of(
        home, name_servers=list(kinds), brokers=list(kinds), settings=settings
    ) as started:
        yield started


def _index(servers: str, kind: str) -> int:
    return (KINDS if servers == OURS else STOCK_VERSIONS).index(
        kind if kind in STOCK_VERSIONS or servers == OURS else servers
    )


@pytest.mark.parametrize("name_server_kind", KINDS)
@pytest.mark.parametrize("broker_kind", KINDS)
def test_each_broker_serves_through_each_name_server(
    name_server_kind: str, broker_kind: str, servers: str, java: JavaClients, mixed: Cluster, names
) -> None:
    namesrv = mixed.name_servers[_index(servers, name_server_kind)].address
    broker = mixed.brokers[_index(servers, broker_kind)]
    topic = mixed.create_topic(java, names.topic, brokers=[broker])
    bodies = [f"m{number}" for number in range(20)]
    with (
        java.producer(namesrv) as producer,
        java.consumer(namesrv, names.group, {topic: "a || b"}) as consumer,
    ):
        messages = [{"topic": topic, "body": body, "tags": "a"} for body in bodies]
        results = producer.send(*messages, {"topic": topic, "body": "unwanted", "tags": "c"})
        assert {result["broker"] for result in results} == {broker.name}
        assert sorted(message["body"] for message in consumer.received(20)) == sorted(bodies)


def test_a_topic_over_all_brokers(java: JavaClients, mixed: Cluster, names) -> None:
    topic = mixed.create_topic(java, names.topic)
    group = names.group
    brokers = {broker.name for broker in mixed.brokers}
    namesrv = ";".join(name_server.address for name_server in mixed.name_servers)
    with (
        java.producer(namesrv) as producer,
        java.consumer(namesrv, group, {topic: "*"}, failTimes=1) as consumer,
    ):
        bodies = [f"m{number}" for number in range(30)]
        results = producer.send(*({"topic": topic, "body": body} for body in bodies))
        assert {result["broker"] for result in results} == brokers
        # Each message fails once, so that each broker's retry is seen as well.
        received = consumer.received(60)
    assert {m["broker"] for m in received} == brokers
    for times in (0, 1):
        bodies_then = [m["body"] for m in received if m["reconsumeTimes"] == times]
        assert sorted(bodies_then) == sorted(bodies)


def test_every_name_server_shows_every_broker(java: JavaClients, mixed: Cluster) -> None:
    for name_server in mixed.name_servers:
        shown = java.mqadmin("clusterList", "-n", name_server.address)
        for broker in mixed.brokers:
            assert broker.address in shown, f"{broker.name} at {name_server.name}:\n{shown}"


def test_a_broker_works_while_a_name_server_is_down(
    java: JavaClients, mixed: Cluster, names
) -> None:
    """The last test here: one name server stays away for a while and hears of all on its return."""
    away, present = mixed.name_servers[0], mixed.name_servers[1]
    away.kill()
    broker = mixed.brokers[0]
    topic = names.topic
    java.create_topic(present.address, broker.address, topic, 4)
    wait_until(lambda: present.routes(topic, [broker]), "the route where a name server is")
    with java.producer(present.address) as producer, java.puller(present.address) as puller:
        producer.send({"topic": topic, "body": "one"})
        assert [message["body"] for message in puller.drain(topic)] == ["one"]
    away.start()
    # Brokers register anew every registerNameServerPeriod.
    wait_until(lambda: all(map(away.knows, mixed.brokers)), "all brokers again")
