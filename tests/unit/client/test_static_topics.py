"""Clients of a static topic, whose queues move from one broker to another."""

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.client.message import PullStatus
from rocketmq_tw.client.settings import StartFrom
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.static_topics import TOPIC, hosting, item

#: Where queues begin on the broker to which they moved.
BLOCK = 10_000


class Movable:
    """The topic has two logic queues on broker-a, until they move to broker-b."""

    def __init__(self, world):
        self.world = world
        world.add_other()
        self.brokers = {"broker-a": world.broker, "broker-b": world.other}
        self._host("broker-a", {n: [item(0, "broker-a", n)] for n in (0, 1)}, epoch=1_000)

    def move(self):
        """In the steps of stock's tools."""
        for logic in (-1, BLOCK):
            queues = {n: [item(0, "broker-a", n), item(1, "broker-b", n, logic)] for n in (0, 1)}
            for name in ("broker-b", "broker-a"):
                self._host(name, queues, epoch=2_000)

    def send(self, broker, *bodies, queue_id=0):
        """As a producer that knows who leads the queue."""
        for body in bodies:
            request = self.brokers[broker].send_request(body, topic=TOPIC, queue_id=queue_id)
            assert self.brokers[broker].request(request).code == ResponseCode.SUCCESS

    def _host(self, broker, queues, epoch):
        answer = self.brokers[broker].request(hosting(broker, queues, epoch=epoch))
        assert answer.code == ResponseCode.SUCCESS, answer
        self.world.wait(1)


@pytest.fixture
def topic(world):
    return Movable(world)


class TestReading:
    def test_offsets_go_on_behind_a_move(self, world, topic):
        topic.send("broker-a", b"0", b"1", b"2")
        topic.move()
        topic.send("broker-b", b"3", b"4")
        consumer = world.pull_consumer()
        (queue, _) = world.run(consumer.queues(TOPIC))[-2:]
        before = world.run(consumer.pull(queue, 1))
        assert [message.queue_offset for message in before.messages] == [1, 2]
        between = world.run(consumer.pull(queue, before.next_offset))
        assert (between.status, between.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, BLOCK)
        behind = world.run(consumer.pull(queue, between.next_offset))
        assert [message.queue_offset for message in behind.messages] == [BLOCK, BLOCK + 1]
        assert {message.queue for message in before.messages + behind.messages} == {queue}

    def test_what_is_not_done_behind_a_move_comes_again(self, world, topic):
        topic.send("broker-a", b"before")
        topic.move()
        topic.send("broker-b", b"behind")
        held = {}

        def listener(message):
            held[message.body] = Deferred()
            return held[message.body]

        consumer = world.push_consumer(listener, start_from=StartFrom.FIRST)
        consumer.subscribe(TOPIC)
        world.run(consumer.start())
        world.wait(1)
        assert held.keys() == {b"before", b"behind"}
        held[b"before"].callback(None)
        world.wait(6)
        # What its group would go on with, were it killed now.
        watcher = world.pull_consumer("workers")
        (queue, _) = world.run(watcher.queues(TOPIC))[-2:]
        assert world.run(watcher.committed_offset(queue)) == BLOCK
