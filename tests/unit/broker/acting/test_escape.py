"""What an acting master makes goes into the log of another group's master."""

from __future__ import annotations

from collections import Counter

import pytest
from twisted.internet.defer import succeed

from rocketmq_tw.broker.acting.part import Acting
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.container.neighbours import NearbyBrokers
from rocketmq_tw.message.names import retry_topic
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from rocketmq_tw.wire.permissions import READ, WRITE
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer
from tests.support.sim.acting import ActingCluster
from tests.support.static_topics import TOPIC as STATIC
from tests.support.static_topics import static_topic
from tests.support.stores import make_message


def two_groups(**settings: object) -> ActingCluster:
    """Groups a and b with a slave each, and `Topic` with four queues on both masters."""
    cluster = ActingCluster(settings=settings)
    for name in ("a", "b"):
        master = cluster.start_group(name)
        master.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    cluster.run(8)
    return cluster


def lose_master(cluster: ActingCluster) -> None:
    """Kills the master of a once its slave has all of its log, and waits until that acts."""
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))


def bodies(cluster: ActingCluster, name: str) -> list[bytes]:
    """What consumers of a master see in all queues."""
    broker = cluster.broker(name, 0)
    return [message.body for queue in range(4) for message in broker.consume("Topic", queue)]


def test_delayed_messages_of_a_lost_master_come_through_the_other_group() -> None:
    cluster = two_groups()
    sent = [b"%d" % number for number in range(40)]
    for number, body in enumerate(sent):
        ok(cluster.broker("a", 0).send(body, queue_id=number % 4, properties={"DELAY": "3"}))
    cluster.run_until(lambda: cluster.follows("a", 1))
    end = cluster.broker("a", 1).store.end_offset
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(15)
    assert Counter(bodies(cluster, "b")) == Counter(sent)
    assert cluster.broker("a", 1).store.end_offset == end, "its log stays a copy"


def test_without_remote_escape_they_wait_for_the_master() -> None:
    cluster = two_groups(enable_remote_escape=False)
    ok(cluster.broker("a", 0).send(b"late", properties={"DELAY": "2"}))
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.run(15)
    assert bodies(cluster, "b") == []
    cluster.start("a", 0)
    cluster.run(15)
    assert bodies(cluster, "a") == [b"late"]


def test_another_master_takes_over_where_the_first_one_dies() -> None:
    cluster = two_groups()
    third = cluster.start_group("c")
    third.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    cluster.run(8)
    sent = [b"%d" % number for number in range(100)]
    for number, body in enumerate(sent):
        ok(cluster.broker("a", 0).send(body, properties={"DELAY": "2" if number < 50 else "4"}))
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    cluster.run(15)
    took = [name for name in ("b", "c") if bodies(cluster, name)]
    assert len(took) == 1, "one and the same while it lives"
    first = bodies(cluster, took[0])
    cluster.kill(took[0], 0)
    (other,) = {"b", "c"} - set(took)
    cluster.run(40)
    assert Counter(first + bodies(cluster, other)) == Counter(sent)


@pytest.mark.parametrize("taker", ["b", "d"])
def test_the_only_other_master_that_takes_messages_is_found(taker: str) -> None:
    """The others are there and refuse, as masters of stock whose disks are full."""
    cluster = two_groups()
    for name in "cdefg":
        cluster.start_group(name).add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    cluster.run(8)
    sent = [b"%d" % number for number in range(20)]
    for body in sent:
        ok(cluster.broker("a", 0).send(body, properties={"DELAY": "2"}))
    cluster.run_until(lambda: cluster.follows("a", 1))
    cluster.kill("a", 0)
    for name in set("bcdefg") - {taker}:
        refuse_sends(cluster.broker(name, 0))
    cluster.run(15)
    assert Counter(bodies(cluster, taker)) == Counter(sent)


def refuse_sends(broker: BrokerInMemory) -> None:
    """Lets a broker refuse what it is sent."""

    def refuse(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")

    broker.broker.listener.handlers[RequestCode.SEND_MESSAGE_V2] = refuse


def test_its_own_group_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A route may name the lost master for a while."""
    cluster = two_groups()
    route = cluster.route("Topic")
    route.broker_datas = [each for each in route.broker_datas if each.broker_name == "a"]
    route.queue_datas = [each for each in route.queue_datas if each.broker_name == "a"]
    assert route.queue_datas[0].perm == READ | WRITE
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    slave = cluster.broker("a", 1)
    monkeypatch.setattr(slave.broker[BrokerClient], "find_route", lambda *_: succeed(route))
    with pytest.raises(RequestError, match="no other group has a master"):
        cluster.result(slave.broker[Acting].bridge.put(make_message(b"x")))


def test_what_is_tried_more_often_than_others_comes_again() -> None:
    """Consumers say how often with each message that they give back; a send to the retry topic has
    the group's own limit, 16, where it says nothing."""
    cluster = two_groups()
    master = cluster.broker("a", 0)
    for name in "ab":
        cluster.broker(name, 0).subscribe("G", FakePeer())
    sent = ok(master.send(b"often", reconsume_times=20))
    header = ConsumerSendMsgBackRequestHeader(
        offset=int(sent["msgId"][-16:], 16), group="G", delay_level=3, max_reconsume_times=40
    )
    request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    cluster.run(1)
    ok(master.request(request))
    lose_master(cluster)
    cluster.run(15)
    again = cluster.broker("b", 0).consume(retry_topic("G"))
    assert [(each.body, each.reconsume_times) for each in again] == [(b"often", 21)]


def test_brokers_that_check_the_type_take_what_waited() -> None:
    """A delayed message that has come due is no delayed one any more."""
    cluster = two_groups(enable_topic_message_type_check=True)
    for name in "ab":
        cluster.broker(name, 0).add_topic(
            "Delays", write_queue_nums=4, read_queue_nums=4, attributes={"+message.type": "DELAY"}
        )
    cluster.run(1)
    master = cluster.broker("a", 0)
    due = str(master.now_ms() + 8_000)
    for body, properties in ((b"level", {"DELAY": "2"}), (b"timed", {"TIMER_DELIVER_MS": due})):
        ok(master.send(body, topic="Delays", properties=properties))
    lose_master(cluster)
    cluster.run(15)
    came = [message.body for message in cluster.broker("b", 0).consume("Delays")]
    assert sorted(came) == [b"level", b"timed"]


@pytest.mark.parametrize("is_near", [False, True])
def test_a_static_topic_s_messages_go_to_logic_queues_of_the_other_broker(is_near: bool) -> None:
    """Its own are led by the master that is lost."""
    cluster, nearby = ActingCluster(), list[Broker]()
    cluster.neighbours["a", 1] = NearbyBrokers(cluster.network.clock, nearby)
    for name, queues in (("a", (0, 1)), ("b", (2, 3))):
        static_topic(cluster.start_group(name), queues)
    cluster.run(8)
    if is_near:
        nearby.append(cluster.broker("b", 0).broker)
    for number in range(8):
        master = cluster.broker("a", 0)
        ok(
            master.send(
                b"%d" % number, topic=STATIC, queue_id=number % 2, properties={"DELAY": "2"}
            )
        )
    lose_master(cluster)
    cluster.run(15)
    read = [cluster.broker("b", 0).consume(STATIC, queue) for queue in range(2)]
    assert [[message.body for message in queue] for queue in read] == [
        [b"0", b"2", b"4", b"6"],
        [b"1", b"3", b"5", b"7"],
    ]


def test_a_static_topic_of_the_lost_master_alone_waits_for_it() -> None:
    """A plain topic of that name elsewhere would be read by nobody."""
    cluster = two_groups()
    master = cluster.broker("a", 0)
    ok(static_topic(master, (0, 1), total=2))
    cluster.run(1)
    ok(master.send(b"x", topic=STATIC, properties={"DELAY": "2"}))
    lose_master(cluster)
    cluster.run(15)
    assert cluster.broker("b", 0).topics.get(STATIC) is None
    cluster.start("a", 0)
    cluster.run(15)
    assert [each.body for each in cluster.broker("a", 0).consume(STATIC)] == [b"x"]
