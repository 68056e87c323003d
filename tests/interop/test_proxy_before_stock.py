"""What our proxies do for gRPC clients by what stock's broker has for it: batches of
acknowledgements, renewed messages, and the topic by which proxies tell each other of consumers."""

from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import Code
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.clients import ConsumerConnection
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.clients import GetConsumerConnectionListRequestHeader
from tests.support.bare_grpc import BareClient
from tests.support.cluster import Cluster
from tests.support.proxies import OurProxy
from tests.support.remoting import ask, create_topic
from tests.support.wait import wait_until

STOCK = "5.3.3"
#: Stock's broker pops with timers only, and proxies make their topic in a cluster of this name.
SETTINGS = {"timerWheelEnable": "true", "brokerClusterName": "DefaultCluster"}
#: Seconds for which a message that is renewed is hidden at first, by its proxies' key.
HIDDEN = 20
#: The least that a client may ask for, and by how much a message may come late.
LEAST, LATE = 10, 5


class Site:
    """A broker of stock's, and two proxies of ours before it: one says acknowledgements to the
    broker one by one, the other as many as there are at once."""

    def __init__(self, cluster: Cluster, single: OurProxy, batching: OurProxy) -> None:
        self.cluster = cluster
        self.single, self.batching = single, batching

    def topic(self, name: str, queues: int = 1) -> str:
        create_topic(self.cluster.broker.address, name, queues)
        return name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("before-stock")
    keys = {"defaultInvisibleTimeMills": HIDDEN * 1000}
    with (
        Cluster.of(home, name_servers=[STOCK], brokers=[STOCK], settings=SETTINGS) as cluster,
        OurProxy(home / "single", cluster.namesrv, **keys) as single,
        OurProxy(home / "batching", cluster.namesrv, enableBatchAck=True, **keys) as batching,
    ):
        yield Site(cluster, single, batching)


def joined(client: BareClient, group: str, topic: str) -> list[pb.MessageQueue]:
    """The queues of a topic that a client has joined a group for. It has asked each for messages: a
    new group begins with those that come from then on."""
    client.consume(group, topic)
    queues = wait_until(lambda: client.queues(topic), f"the route of {topic}", interval=0.2)
    for queue in queues:
        assert client.receive(group, queue, invisible=LEAST) == []
    return queues


def receive(
    client: BareClient, group: str, queues: list[pb.MessageQueue], count: int, **hidden: Any
) -> list[pb.Message]:
    """Receives until there are so many messages."""
    found: list[pb.Message] = []

    def enough() -> bool:
        for queue in queues:
            found.extend(client.receive(group, queue, **hidden))
        return len(found) >= count

    wait_until(enough, f"{count} messages", interval=0.0)
    return found


def come_within(
    client: BareClient, group: str, queues: list[pb.MessageQueue], seconds: float
) -> list[pb.Message]:
    """What comes to a group in a span of time."""
    found: list[pb.Message] = []
    end = monotonic() + seconds
    while monotonic() < end:
        for queue in queues:
            found += client.receive(group, queue, invisible=LEAST)
    return found


def acknowledge(client: BareClient, group: str, topic: str, messages: list[pb.Message]) -> Any:
    """The answer to one call that acknowledges all these messages."""
    request = pb.AckMessageRequest(group=pb.Resource(name=group), topic=pb.Resource(name=topic))
    for message in messages:
        request.entries.add(
            message_id=message.system_properties.message_id,
            receipt_handle=message.system_properties.receipt_handle,
        )
    return client.call("AckMessage", request, pb.AckMessageResponse, 10)


def test_what_a_batch_acknowledges_never_comes_again(site: Site, names) -> None:
    topic, other = site.topic(names.topic, queues=3), site.topic(names.topic, queues=3)
    group, count = names.group, 24
    with BareClient(site.batching.address, "batching") as client:
        queues = joined(client, group, topic)
        for number in range(count):
            assert client.send(topic, f"{number}").code == Code.OK
        messages = receive(client, group, queues, count, invisible=LEAST)
        assert sorted(int(each.body) for each in messages) == list(range(count))
        # Stock's broker passes over what a batch names and the topic has not, and says OK: that
        # tells a batch from acknowledgements one by one, which it refuses.
        strange = acknowledge(client, group, other, messages)
        assert {entry.status.code for entry in strange.entries} == {Code.OK}
        answer = acknowledge(client, group, topic, messages[1:])
        assert answer.status.code == Code.OK
        again = receive(client, group, queues, 1, invisible=LEAST)
        assert [each.body for each in again] == [messages[0].body]
        assert client.acknowledge(group, again[0]) == Code.OK
        assert come_within(client, group, queues, LEAST + LATE) == []


def test_a_renewed_message_stays_hidden_and_ends_at_another_proxy(site: Site, names) -> None:
    topic, group = site.topic(names.topic), names.group
    with (
        BareClient(site.single.address, "keeps") as keeper,
        BareClient(site.batching.address, "waits") as other,
    ):
        queues = joined(keeper, group, topic)
        joined(other, group, topic)
        assert keeper.send(topic, "kept").code == Code.OK
        (message,) = receive(keeper, group, queues, 1, invisible=None)
        assert come_within(other, group, queues, 2 * HIDDEN + LATE) == []
        assert keeper.acknowledge(group, message) == Code.OK
        assert come_within(other, group, queues, HIDDEN + LATE) == []
        # A message that was not renewed yet is the broker's alone: each proxy may end it.
        assert keeper.send(topic, "moves").code == Code.OK
        (message,) = receive(keeper, group, queues, 1, invisible=None)
        assert other.acknowledge(group, message) == Code.OK
        keeper.end_stream()
        assert come_within(other, group, queues, HIDDEN + LATE) == []


def test_a_consumer_that_is_gone_leaves_what_it_kept_to_others(site: Site, names) -> None:
    topic, group = site.topic(names.topic), names.group
    with BareClient(site.batching.address, "stays") as other:
        queues = joined(other, group, topic)
        with BareClient(site.single.address, "goes") as gone:
            joined(gone, group, topic)
            assert gone.send(topic, "kept").code == Code.OK
            receive(gone, group, queues, 1, invisible=None)
            leave(gone, group)
        (message,) = receive(other, group, queues, 1, invisible=LEAST)
        assert message.body == b"kept"
        assert message.system_properties.delivery_attempt == 2
        assert other.acknowledge(group, message) == Code.OK


def leave(client: BareClient, group: str) -> None:
    """The client says that it goes."""
    request = pb.NotifyClientTerminationRequest(group=pb.Resource(name=group))
    client.call("NotifyClientTermination", request, pb.NotifyClientTerminationResponse, 10)


def members(address: str, group: str) -> set[str]:
    """Who a proxy, or a broker, says is in a group."""
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    answer = ask(address, RemotingCommand.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header))
    if answer.code != ResponseCode.SUCCESS:
        return set()
    found = decode_body(ConsumerConnection, answer.body)
    return {str(each.client_id) for each in found.connection_set}


def test_each_proxy_and_the_broker_know_the_consumers_of_both(site: Site, names) -> None:
    topic, group = site.topic(names.topic), names.group
    places = (
        site.single.ports.classic,
        site.batching.ports.classic,
        site.cluster.broker.address,
    )
    with (
        BareClient(site.single.address, "one") as one,
        BareClient(site.batching.address, "two") as two,
    ):
        for client in (one, two):
            client.consume(group, topic)
        for place in places:
            wait_until(
                lambda place=place: members(place, group) == {"one", "two"},  # type: ignore[misc]
                f"both consumers at {place}",
                interval=0.2,
            )
        # What proxies believe is written by proxies alone.
        assert one.send("DefaultHeartBeatSyncerTopic", "x").code == Code.ILLEGAL_TOPIC
        leave(one, group)
        for place in places:
            wait_until(
                lambda place=place: members(place, group) == {"two"},  # type: ignore[misc]
                f"one consumer at {place}",
                interval=0.2,
            )
