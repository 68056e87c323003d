"""Clients of a static topic, whose queues move from one broker to another."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.client.errors import BrokerError, NoRouteError
from rocketmq_tw.client.message import Message, PullStatus
from rocketmq_tw.client.offsets import FileOffsets
from rocketmq_tw.client.settings import StartFrom
from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.compression import CompressionType, compression_flag
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pull import PULL_COMMIT_OFFSET, PullMessageRequestHeader
from rocketmq_tw.wire.headers.send import SendMessageResponseHeader
from tests.support.static_topics import TOPIC, hosting, item
from tests.support.stores import queues_of
from tests.support.wait import result_of

#: Where queues begin on the broker to which they moved.
BLOCK = 10_000
LOGIC_0, LOGIC_1 = (
    MessageQueue(topic=TOPIC, broker_name="__syslo__global__", queue_id=number) for number in (0, 1)
)


class Movable:
    """The topic has two logic queues on broker-a, until they move to broker-b."""

    def __init__(self, world):
        self.world = world
        world.add_other()
        self.brokers = {"broker-a": world.broker, "broker-b": world.other}
        self.host("broker-a", {n: [item(0, "broker-a", n)] for n in (0, 1)}, epoch=1_000)

    def move(self, *ids):
        """Moves some queues, all by default, in the steps of stock's tools."""
        for logic in (-1, BLOCK):
            moved = {
                n: [item(0, "broker-a", n), item(1, "broker-b", n, logic)] for n in ids or (0, 1)
            }
            stay = {n: [item(0, "broker-a", n)] for n in {0, 1} - moved.keys()}
            self.host("broker-b", moved, epoch=2_000)
            self.host("broker-a", moved | stay, epoch=2_000)

    def send(self, broker, *bodies, queue_id=0):
        """As a producer that knows who leads the queue."""
        for body in bodies:
            request = self.brokers[broker].send_request(body, topic=TOPIC, queue_id=queue_id)
            assert self.brokers[broker].request(request).code == ResponseCode.SUCCESS

    def host(self, broker, queues, epoch, total=2):
        request = hosting(broker, queues, epoch=epoch, total=total)
        answer = self.brokers[broker].request(request)
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
        (queue, _) = world.run(consumer.queues(TOPIC))
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
        (queue, _) = world.run(watcher.queues(TOPIC))
        assert world.run(watcher.committed_offset(queue)) == BLOCK

    def test_offsets_are_the_logic_queues(self, world, topic):
        consumer = world.pull_consumer()
        queues = world.run(consumer.queues(TOPIC))
        assert queues == [LOGIC_0, LOGIC_1]
        topic.send("broker-a", b"0", b"1")
        topic.move()
        topic.send("broker-b", b"2")
        # It has the route of before the move.
        assert world.run(consumer.max_offset(LOGIC_0)) == BLOCK + 1
        assert world.run(consumer.min_offset(LOGIC_0)) == 0
        assert world.run(consumer.search_offset(LOGIC_0, 0)) == 0
        for offset in (1, BLOCK + 1):
            world.run(consumer.commit_offset(LOGIC_0, offset))
            assert world.run(consumer.committed_offset(LOGIC_0)) == offset

    def test_a_consumer_goes_on_when_its_queues_move(self, world, topic):
        got = []
        consumer = world.push_consumer(
            lambda message: got.append((message.body, message.queue_offset)),
            start_from=StartFrom.FIRST,
        )
        consumer.subscribe(TOPIC)
        world.run(consumer.start())
        topic.send("broker-a", b"before")
        world.wait(1)
        topic.move()
        topic.send("broker-b", b"behind")
        # A pull that the former leader holds ends first.
        world.wait(20)
        assert got == [(b"before", 0), (b"behind", BLOCK)]
        assert [queue for queue in consumer.queues if queue.topic == TOPIC] == [LOGIC_0, LOGIC_1]
        assert consumer.offset(LOGIC_0) == BLOCK + 1

    def test_pulls_commit_nothing(self, world, topic):
        """Stock's brokers keep what a pull commits as an offset of the physical queue: behind a
        move that is one far behind its end."""
        topic.move()
        topic.send("broker-b", b"x")
        handlers = world.other.listener.handlers
        pulls = []

        def keep(request, peer):
            pulls.append(request.header(PullMessageRequestHeader))
            return before(request, peer)

        before = handlers[RequestCode.PULL_MESSAGE]
        handlers[RequestCode.PULL_MESSAGE] = keep
        consumer = world.push_consumer(lambda message: None, start_from=StartFrom.FIRST)
        consumer.subscribe(TOPIC)
        world.run(consumer.start())
        world.wait(40)
        of_topic = [pull for pull in pulls if pull.topic == TOPIC]
        assert any(pull.queue_offset > BLOCK for pull in of_topic)
        assert not any(pull.sys_flag & PULL_COMMIT_OFFSET for pull in of_topic)
        watcher = world.pull_consumer("workers")
        world.run(watcher.queues(TOPIC))
        assert world.run(watcher.committed_offset(LOGIC_0)) == BLOCK + 1

    def test_an_ordered_consumer_locks_logic_queues_at_their_leader(self, world, topic):
        topic.move()
        topic.send("broker-b", b"0", b"1")
        got = []
        consumer = world.push_consumer(
            lambda message: got.append(message.body), orderly=True, start_from=StartFrom.FIRST
        )
        consumer.subscribe(TOPIC)
        world.run(consumer.start())
        world.wait(1)
        assert got == [b"0", b"1"]
        other = LockBatchRequestBody(
            consumer_group="workers", client_id="other", mq_set=[LOGIC_0, LOGIC_1]
        )
        request = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=encode_body(other))
        answer = decode_body(LockBatchResponseBody, world.other.request(request).body)
        assert answer.lock_ok_mq_set == []

    def test_members_share_queues_that_nobody_leads(self, world, topic):
        """As stock's do, so that all members divide the same."""
        topic.host("broker-a", {0: [item(0, "broker-a", 0)]}, epoch=3_000, total=3)
        consumer = world.pull_consumer()
        queues = world.run(consumer.queues(TOPIC))
        assert [queue.queue_id for queue in queues] == [0, 1, 2]
        with pytest.raises(NoRouteError, match="leads queue 2 of the static topic Static"):
            world.run(consumer.max_offset(queues[2]))


class TestGivingBack:
    def consumer(self, world, listener, **options):
        consumer = world.push_consumer(listener, start_from=StartFrom.FIRST, **options)
        consumer.subscribe(TOPIC)
        world.run(consumer.start())
        return consumer

    def test_a_refused_message_comes_again_whichever_broker_has_it(self, world, topic):
        topic.send("broker-a", b"before", b"x" * 5_000)
        topic.move()
        topic.send("broker-b", b"behind")
        got = []

        def listener(message):
            got.append((message.body, message.reconsume_times, message.topic))
            if not message.reconsume_times:
                raise ValueError("not now")

        self.consumer(world, listener)
        # The retry topic's queues are looked for every 20 s.
        world.wait(45)
        bodies = [b"before", b"behind", b"x" * 5_000]
        assert sorted(got) == sorted((body, n, TOPIC) for body in bodies for n in (0, 1))

    def test_one_that_was_tried_too_often_is_a_dead_letter(self, world, topic):
        topic.send("broker-a", b"bad")
        topic.move()
        tries = []

        def listener(message):
            tries.append((message.reconsume_times, message.message_id))
            raise ValueError("never")

        consumer = self.consumer(world, listener, max_reconsume_times=1)
        world.wait(60)
        assert [number for number, _ in tries] == [0, 1]
        (dead,) = dead_letters(world)
        properties = parse_properties(dead.properties)
        assert (dead.body, properties["RETRY_TOPIC"]) == (b"bad", TOPIC)
        assert properties["ORIGIN_MESSAGE_ID"] == tries[0][1]
        assert consumer.offset(LOGIC_0) == BLOCK

    def test_a_damaged_one_is_a_dead_letter_at_once(self, world, topic):
        flag = compression_flag(CompressionType.ZLIB)
        broken = StoredMessage(topic=TOPIC, queue_id=0, body=b"no zlib", sys_flag=flag)
        world.put(broken)
        got = []
        self.consumer(world, lambda message: got.append(message.body))
        world.wait(5)
        (dead,) = dead_letters(world)
        assert (dead.body, dead.sys_flag & flag, got) == (b"no zlib", flag, [])

    def test_what_is_not_safe_yet_is_given_back_again(self, world, topic):
        topic.send("broker-a", b"x")

        def listener(message):
            raise ValueError("not now")

        def not_safe(request, peer):
            header = SendMessageResponseHeader(msg_id="1", queue_id=0, queue_offset=0)
            return request.response(ResponseCode.FLUSH_SLAVE_TIMEOUT, header=header)

        world.answer(RequestCode.SEND_MESSAGE_V2, not_safe)
        with capturedLogs() as events:
            consumer = self.consumer(world, listener)
            world.wait(4)
        assert any("not safe yet: FLUSH_SLAVE_TIMEOUT" in formatEvent(event) for event in events)
        assert consumer.offset(LOGIC_0) == 0


def dead_letters(world):
    found = []
    for broker in (world.broker, world.other):
        for queue_id in queues_of(broker.store).get("%DLQ%workers", ()):
            for unit in broker.store.queue_units("%DLQ%workers", queue_id, 0, 100):
                found.append(broker.store.message_at(unit.position))
    return found


def test_a_broadcast_goes_on_where_older_versions_kept_it():
    files = MemoryFiles()
    kept = {"Static@broker-a@0": 7, "Static@broker-b@0": 3, "Static@broker-a@1": 9, "S@a@0": 11}
    write_atomic(files, "offsets.json", msgspec.json.encode(kept))
    offsets = FileOffsets("offsets.json", files)
    assert run_now(offsets.read(LOGIC_0)) == 7
    run_now(offsets.write({LOGIC_0: BLOCK}))
    assert run_now(offsets.read(LOGIC_0)) == BLOCK
    assert run_now(FileOffsets(None).read(LOGIC_0)) is None


def run_now(work):
    return result_of(Clock(), Deferred.fromCoroutine(work))


class TestSending:
    def test_all_sends_behind_a_move_go_to_the_new_leader(self, world, topic):
        topic.move()
        producer = world.producer(retries=0)
        sent = [world.run(producer.send(Message(TOPIC, b"x"))) for _ in range(4)]
        assert [result.queue for result in sent] == [LOGIC_0, LOGIC_1] * 2
        assert [result.queue_offset for result in sent] == [BLOCK, BLOCK, BLOCK + 1, BLOCK + 1]

    def test_a_queue_that_moves_while_it_is_in_use_is_followed(self, world, topic):
        producer = world.producer(retries=0)
        queue = world.run(producer.queues(TOPIC))[1]
        before = world.run(producer.send(Message(TOPIC, b"x"), queue=queue))
        topic.move()
        behind = world.run(producer.send(Message(TOPIC, b"x"), queue=queue))
        batch = world.run(producer.send_batch([Message(TOPIC, b"y")] * 2, queue=queue))
        assert [each.queue_offset for each in (before, behind, batch)] == [0, BLOCK, BLOCK + 1]

    def test_another_queue_is_tried_where_a_leader_fails(self, world, topic):
        topic.move(1)

        def refuse(request, peer):
            raise RequestError(ResponseCode.SYSTEM_BUSY, "no")

        world.answer(RequestCode.SEND_MESSAGE_V2, refuse)
        sent = [world.run(world.producer().send(Message(TOPIC, b"x"))) for _ in range(2)]
        assert [result.queue for result in sent] == [LOGIC_1, LOGIC_1]

    def test_a_leader_that_is_not_known_yet_fails_the_send(self, world, topic):
        topic.move()
        producer = world.producer(retries=0)

        def refuse(request, peer):
            raise RequestError(ResponseCode.NOT_LEADER_FOR_QUEUE, "not me")

        world.other.listener.handlers[RequestCode.SEND_MESSAGE_V2] = refuse
        with pytest.raises(BrokerError) as refused:
            world.run(producer.send(Message(TOPIC, b"x"), queue=LOGIC_0))
        assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE
