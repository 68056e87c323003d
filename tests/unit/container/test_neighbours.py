"""What an acting master makes goes to a master of its own container first."""

from __future__ import annotations

from collections import Counter

import pytest

from rocketmq_tw.broker.assembly.neighbours import INeighbours
from rocketmq_tw.broker.broker import Broker
from rocketmq_tw.container.neighbours import NamedNeighbours, NearbyBrokers
from rocketmq_tw.message.names import retry_topic
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from tests.support.broker import ok
from tests.support.containers import ContainerInMemory
from tests.support.network import FakePeer
from tests.support.sim.acting import ActingCluster

SENT = [b"%d" % number for number in range(40)]


class Groups(ActingCluster):
    """Groups a, b and c; the slave of a has `neighbours`, and would choose c without."""

    def __init__(self, neighbours: INeighbours | None = None, **settings: object) -> None:
        super().__init__(settings=settings)
        self.nearby: list[Broker] = []
        shared = NearbyBrokers(self.network.clock, self.nearby)
        self.neighbours["a", 1] = neighbours or shared
        for name in ("a", "b", "c"):
            self.start_group(name).add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
        self.run(8)
        #: Sends that came to a master over the network.
        self.sends: Counter[str] = Counter()
        for name in ("b", "c"):
            self.watch(name)

    def watch(self, name: str) -> None:
        def count(request: object, peer: object) -> None:
            if getattr(request, "code", None) == RequestCode.SEND_MESSAGE_V2:
                self.sends[name] += 1

        self.broker(name, 0).listener.add_check(count)

    def lose_master(self) -> None:
        """Delayed messages wait in a, whose master dies; they come due at once."""
        for number, body in enumerate(SENT):
            ok(
                self.broker("a", 0).send(
                    body, queue_id=number % 4, properties={"DELAY": "2" if number < 20 else "4"}
                )
            )
        self.run_until(lambda: self.follows("a", 1))
        self.kill("a", 0)
        self.run_until(lambda: self.acts("a", 1))

    def bodies(self, name: str) -> Counter[bytes]:
        broker = self.broker(name, 0)
        return Counter(
            message.body for queue in range(4) for message in broker.consume("Topic", queue)
        )


def test_a_master_in_the_same_process_is_called_without_the_network() -> None:
    cluster = Groups()
    cluster.nearby.append(cluster.broker("b", 0).broker)
    cluster.lose_master()
    cluster.run(40)
    assert cluster.bodies("b") == Counter(SENT)
    assert not cluster.sends and not cluster.bodies("c")
    bridge_took = cluster.broker("b", 0).consume("Topic", 3)
    assert [message.body for message in bridge_took if int(message.body) < 20] == [
        b"%d" % number for number in range(3, 20, 4)
    ], "in the queues that they were sent to, in order"


def test_a_master_in_another_process_of_the_container_is_preferred_by_its_name() -> None:
    named = NamedNeighbours()
    named.names = ["a", "b"]
    cluster = Groups(named)
    cluster.lose_master()
    cluster.run(40)
    assert cluster.bodies("b") == Counter(SENT)
    assert cluster.sends == {"b": len(SENT)}


def test_without_a_master_nearby_another_one_takes_over() -> None:
    cluster = Groups()
    cluster.nearby.append(cluster.broker("b", 0).broker)
    cluster.lose_master()
    cluster.run_until(lambda: cluster.bodies("b"))
    cluster.nearby.clear()
    cluster.kill("b", 0)
    first = Counter(SENT[:20])
    cluster.run(60)
    assert cluster.bodies("c") | first == Counter(SENT)
    assert cluster.sends["c"] >= 20


@pytest.mark.parametrize("how", ["together", "separate"])
@pytest.mark.parametrize("has_topic", [True, False])
def test_a_container_needs_no_key_for_what_stays_in_it(how: str, has_topic: bool) -> None:
    named = NamedNeighbours()
    named.names = ["a", "b"]
    cluster = Groups(named if how == "separate" else None, enable_remote_escape=False)
    near = cluster.broker("b", 0)
    if how == "together":
        cluster.nearby.append(near.broker)
    topic = "Topic" if has_topic else "Other"
    for name in "ac":
        cluster.broker(name, 0).add_topic("Other", read_queue_nums=4, write_queue_nums=4)
    ok(cluster.broker("a", 0).send(b"x", topic=topic, properties={"DELAY": "2"}))
    cluster.lose_master()
    cluster.run(10)
    assert b"x" in [each.body for each in near.consume(topic, 0)]
    cluster.nearby.clear()
    named.names = ["a"]
    cluster.run(40)
    assert cluster.bodies("b") - Counter([b"x"]) == Counter(SENT[:20]), "those of before"
    assert not cluster.sends["c"]


def test_a_topic_that_the_master_nearby_has_not_goes_where_it_is() -> None:
    cluster = Groups()
    near = cluster.broker("b", 0)
    cluster.nearby.append(near.broker)
    for name in ("a", "c"):
        cluster.broker(name, 0).add_topic("Other", read_queue_nums=4, write_queue_nums=4)
    ok(cluster.broker("a", 0).send(b"x", topic="Other", properties={"DELAY": "2"}))
    cluster.lose_master()
    cluster.run(30)
    assert near.topics.get("Other") is None
    assert [each.body for each in cluster.broker("c", 0).consume("Other", 0)] == [b"x"]
    assert cluster.bodies("b") == Counter(SENT)


def test_what_a_slave_is_given_back_goes_to_a_master_by_its_name() -> None:
    named = NamedNeighbours()
    cluster = Groups(named)
    for body in (b"x", b"y"):
        ok(cluster.broker("a", 0).send(body))
    cluster.run(2)
    slave = cluster.broker("a", 1)
    first, second = slave.consume("Topic", 0)

    def give_back(offset: int) -> RemotingCommand:
        header = ConsumerSendMsgBackRequestHeader(offset=offset, group="G", delay_level=1)
        request = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        peer = FakePeer()
        answer = slave.request(request, peer)
        cluster.run(1)
        return answer or peer.replies[-1]

    assert give_back(first.physical_offset).code == ResponseCode.SYSTEM_BUSY, "none is here"
    named.names = ["a", "gone", "c"]
    ok(give_back(second.physical_offset))
    cluster.run(2)
    assert [each.body for each in cluster.broker("c", 0).consume(retry_topic("G"), 0)] == [b"y"]
    named.names = ["a", "gone"]
    answer = give_back(first.physical_offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "gone" in (answer.remark or "")
    answer = give_back(1 << 40)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "no message" in (answer.remark or "")


def test_a_slave_is_no_neighbour_to_write_to() -> None:
    cluster = Groups()
    cluster.nearby.append(cluster.broker("b", 1).broker)
    neighbours = cluster.neighbours["a", 1]
    assert neighbours.masters() == [] and neighbours.write_queues("b", "Topic") == 0
    assert not neighbours.ask("b", cluster.broker("b", 0).send_request(b"x"))


def test_a_refusal_of_a_neighbour_is_told() -> None:
    cluster = Groups()
    cluster.nearby.append(cluster.broker("b", 0).broker)
    request = cluster.broker("b", 0).send_request(b"x", queue_id=99)
    asked = cluster.neighbours["a", 1].ask("b", request)
    assert asked is not None
    answers: list[RemotingCommand] = []
    asked.addCallback(answers.append)
    cluster.run(1)
    (answer,) = answers
    assert answer.code == ResponseCode.INVALID_PARAMETER and "queue" in (answer.remark or "")


def test_brokers_of_one_process_know_each_other_while_they_serve() -> None:
    container = ContainerInMemory()
    for name, port in (("a", 11), ("b", 21)):
        container.add(container.file(name, port))
    neighbours = container.together.neighbours
    assert neighbours.masters() == ["a", "b"]
    assert container.remove("b").code == ResponseCode.SUCCESS
    assert neighbours.masters() == ["a"]
