"""Stock's proxy and ours before one broker: they tell each other of their consumers."""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import grpc
import pytest

from rocketmq_tw.proxy.proto import messages as pb
from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients, PushConsumer
from tests.support.proxies import OurProxy, StockProxy
from tests.support.wait import wait_until

STOCK = "5.3.3"
#: The one that stock's proxy creates its topic in.
SETTINGS = {"brokerClusterName": "DefaultCluster"}


class Site:
    """A broker of ours, and the addresses of both proxies for classic clients."""

    def __init__(self, cluster: Cluster, ours: OurProxy, stocks: StockProxy) -> None:
        self.cluster = cluster
        self.ours = ours.ports.classic
        self.stocks = stocks.ports.classic
        self.grpc = ours.ports.grpc, stocks.ports.grpc


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("side-by-side")
    with (
        Cluster.of(home, name_servers=[OURS], brokers=[OURS], settings=SETTINGS) as cluster,
        OurProxy(home / "ours", cluster.name_servers[0].address) as ours,
        StockProxy(STOCK, home / "stocks", cluster.name_servers[0].address) as stocks,
    ):
        yield Site(cluster, ours, stocks)


def held(consumer: PushConsumer, topic: str) -> set[int]:
    return {queue["queue"] for queue in consumer.assigned() if queue["topic"] == topic}


def members(java: JavaClients, address: str, group: str) -> set[str]:
    found = java.admin(address, "examineConsumerConnectionInfo", group)
    return {each["clientId"] for each in found["connectionSet"]}


def test_members_at_both_divide_the_queues(site: Site, jvms, names) -> None:
    java: JavaClients = jvms[STOCK]
    topic, group = site.cluster.create_topic(java, names.topic, queues=4), names.group
    with (
        java.consumer(site.ours, group, {topic: "*"}) as one,
        java.consumer(site.stocks, group, {topic: "*"}) as other,
        java.producer(site.ours) as producer,
    ):

        def divided() -> bool:
            queues = held(one, topic), held(other, topic)
            return [len(each) for each in queues] == [2, 2] and not queues[0] & queues[1]

        wait_until(divided, "two queues for each", interval=0.2)
        for number in range(8):
            producer.send({"topic": topic, "body": str(number)}, queue=number % 4)
        wait_until(lambda: len(one.received()) == len(other.received()) == 4, "four for each")
        assert sorted(one.bodies() + other.bodies()) == [str(number) for number in range(8)]
        # Tools that ask a proxy see both, whichever it is.
        both = members(java, site.ours, group)
        assert len(both) == 2
        assert members(java, site.stocks, group) == both
        shown = java.mqadmin("consumerConnection", "-n", site.ours, "-g", group)
        assert all(client_id in shown for client_id in both)
        other.stop()
        wait_until(lambda: held(one, topic) == {0, 1, 2, 3}, "all queues", interval=0.2)
        assert len(members(java, site.ours, group)) == 1


@contextmanager
def grpc_consumer(address: str, client_id: str, topic: str, group: str) -> Iterator[None]:
    """A client that has told its settings, which makes it a member."""
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    settings.subscription.group.name = group
    settings.subscription.subscriptions.add().topic.name = topic
    told: SimpleQueue[pb.TelemetryCommand | None] = SimpleQueue()
    told.put(pb.TelemetryCommand(settings=settings))
    metadata = [
        ("x-mq-client-id", client_id),
        ("x-mq-language", "PYTHON"),
        ("x-mq-client-version", "5.0.0"),
    ]
    with grpc.insecure_channel(address) as channel:
        telemetry = channel.stream_stream(
            "/apache.rocketmq.v2.MessagingService/Telemetry",
            request_serializer=pb.TelemetryCommand.SerializeToString,
            response_deserializer=pb.TelemetryCommand.FromString,
        )
        answers = telemetry(iter(told.get, None), metadata=metadata, timeout=120)
        assert next(answers).settings.subscription.group.name == group
        yield
        told.put(None)


def test_grpc_clients_of_both_stand_in_both_lists(site: Site, jvms, names) -> None:
    java: JavaClients = jvms[STOCK]
    topic, group = site.cluster.create_topic(java, names.topic, queues=1), names.group
    ours, stocks = site.grpc
    with (
        grpc_consumer(ours, "at-ours", topic, group),
        grpc_consumer(stocks, "at-stocks", topic, group),
    ):
        for address in (site.ours, site.stocks):
            wait_until(
                lambda address=address: (  # type: ignore[misc]
                    members(java, address, group) == {"at-ours", "at-stocks"}
                ),
                "both clients",
                interval=0.2,
            )
