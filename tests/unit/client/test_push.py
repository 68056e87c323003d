import asyncio

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rocketmq_tw.client import process_queue
from rocketmq_tw.client.message import Message
from rocketmq_tw.client.producer import by_key
from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.client.settings import StartFrom
from rocketmq_tw.message.compression import CompressionType, compression_flag
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import ConsumerRunningInfo
from rocketmq_tw.wire.bodies.queues import ConsumerStatusBody, MessageQueue, ResetOffsetBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import GetConsumerRunningInfoRequestHeader
from rocketmq_tw.wire.headers.offsets import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketmq_tw.wire.headers.pull import PullMessageResponseHeader
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader


def queue(queue_id, topic="T"):
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)


def send(world, *bodies, queue_id=None, **rest):
    producer = world.producer()
    target = None if queue_id is None else queue(queue_id)
    for body in bodies:
        world.run(producer.send(Message("T", body, **rest), queue=target))


def fill(world, count):
    """Sends numbered messages, as many to each queue."""
    producer = world.producer()
    for start in range(0, count, 100):
        batch = [Message("T", b"%d" % number) for number in range(start, start + 100)]
        world.run(producer.send_batch(batch, queue=queue(start // 100 % 4)))


def refuse(request, peer):
    raise RequestError(ResponseCode.SYSTEM_ERROR, "no")


def hang(request, peer):
    return Deferred()


def fail(message):
    raise RuntimeError("never")


def own(consumer):
    return [taken.queue_id for taken in consumer.queues if taken.topic == "T"]


class TestConcurrently:
    def test_all_messages_come_once(self, world):
        send(world, b"1", b"2", b"3")
        got = []
        consumer = world.push_consumer(
            lambda message: got.append(message.body), start_from=StartFrom.FIRST
        )
        world.run(consumer.start())
        world.clock.advance(0)
        send(world, b"4", b"5")
        world.clock.advance(0)
        assert sorted(got) == [b"1", b"2", b"3", b"4", b"5"]

    def test_a_new_group_takes_all_of_a_queue_that_is_still_at_hand(self, world):
        send(world, b"old")
        got = []
        consumer = world.push_consumer(lambda message: got.append(message.body))
        world.run(consumer.start())
        assert got == [b"old"]

    def test_elsewhere_a_new_group_starts_at_the_end_unless_told_otherwise(self, world):
        def no_offset(request, peer):
            return request.response(ResponseCode.QUERY_NOT_FOUND, "nothing was committed")

        world.answer(RequestCode.QUERY_CONSUMER_OFFSET, no_offset)
        send(world, b"old")
        got = []
        consumer = world.push_consumer(lambda message: got.append(message.body))
        world.run(consumer.start())
        send(world, b"new")
        world.clock.advance(0)
        assert got == [b"new"]

    def test_offsets_are_kept_every_five_seconds_and_at_the_stop(self, world):
        consumer = world.push_consumer(lambda message: None, start_from=StartFrom.FIRST)
        world.run(consumer.start())
        send(world, b"1", b"2", queue_id=1)
        world.wait(5.1)
        assert world.broker.offsets.query("workers", "T", 1) == 2
        send(world, b"3", queue_id=1)
        world.run(consumer.stop())
        assert world.broker.offsets.query("workers", "T", 1) == 3

    @pytest.mark.parametrize("stops", [False, True])
    def test_an_offset_is_kept_twice(self, world, stops):
        """Stock's broker loses one of two that come at once, where they are a group's first."""
        requests = world.record(RequestCode.UPDATE_CONSUMER_OFFSET)
        consumer = world.push_consumer(lambda message: None, start_from=StartFrom.FIRST)
        world.run(consumer.start())
        send(world, b"1", b"2", queue_id=1)
        world.clock.advance(0)
        if stops:
            world.run(consumer.stop())
        else:
            world.wait(60)
        fields = [request.ext_fields for request in requests]
        assert [each["commitOffset"] for each in fields if each["queueId"] == "1"] == ["2", "2"]

    def test_an_offset_is_kept_twice_as_its_queue_is_given_up(self, world):
        first = world.push_consumer(lambda message: None, start_from=StartFrom.FIRST)
        world.run(first.start())
        send(world, b"1", b"2", queue_id=3)
        world.clock.advance(0)
        requests = world.record(RequestCode.UPDATE_CONSUMER_OFFSET)
        second = world.push_consumer(lambda message: None, start_from=StartFrom.FIRST)
        world.run(second.start())
        world.wait(0.5)
        assert own(first) == [0, 1]
        fields = [request.ext_fields for request in requests]
        assert [each["commitOffset"] for each in fields if each["queueId"] == "3"] == ["2", "2"]

    def test_a_restart_goes_on_where_it_was(self, world):
        send(world, b"1", b"2", queue_id=1)
        first = world.push_consumer(lambda message: None, start_from=StartFrom.FIRST)
        world.run(first.start())
        world.clock.advance(0)
        world.run(first.stop())
        send(world, b"3", queue_id=1)
        got = []
        second = world.push_consumer(
            lambda message: got.append(message.body), start_from=StartFrom.FIRST
        )
        world.run(second.start())
        world.clock.advance(0)
        assert got == [b"3"]

    def test_the_offset_stays_before_a_message_that_is_not_done(self, world):
        open_ones = {}

        def listener(message):
            open_ones[message.body] = Deferred()
            return open_ones[message.body]

        consumer = world.push_consumer(listener, start_from=StartFrom.FIRST)
        world.run(consumer.start())
        send(world, b"1", b"2", b"3", queue_id=0)
        world.clock.advance(0)
        open_ones[b"2"].callback(None)
        open_ones[b"3"].callback(None)
        world.clock.advance(0)
        assert consumer.offset(queue(0)) == 0
        open_ones[b"1"].callback(None)
        world.clock.advance(0)
        assert consumer.offset(queue(0)) == 3

    def test_no_more_messages_at_a_time_than_concurrency(self, world):
        held = []

        def listener(message):
            held.append(Deferred())
            return held[-1]

        consumer = world.push_consumer(listener, concurrency=2, start_from=StartFrom.FIRST)
        send(world, *(b"%d" % number for number in range(6)))
        world.run(consumer.start())
        world.clock.advance(0)
        assert len(held) == 2
        held[0].callback(None)
        world.clock.advance(0)
        assert len(held) == 3

    @pytest.mark.parametrize("ends", ["at once", "given up"])
    def test_a_backlog_that_waits_for_others_is_gone_through(self, world, ends):
        held, got = [], []

        def listener(message):
            got.append(message.body)
            if len(held) < 20:
                held.append(Deferred())
                return held[-1]
            return None

        fill(world, 4000)
        first = world.push_consumer(listener, start_from=StartFrom.FIRST)
        world.run(first.start())
        world.wait(1)
        assert len(held) == 20
        if ends == "given up":
            # Those of the queues that go to another member end without the listener.
            second = world.push_consumer(
                lambda message: got.append(message.body), start_from=StartFrom.FIRST
            )
            world.run(second.start())
        for each in held:
            each.callback(None)
        world.wait(1)
        if ends == "given up":
            world.run(second.stop())
            world.wait(1)
        assert len(set(got)) == 4000
        assert [first.offset(queue(number)) for number in range(4)] == [1000] * 4

    def test_a_failed_message_comes_again_through_the_retry_topic(self, world):
        got = []
        sent_back = world.record(RequestCode.CONSUMER_SEND_MSG_BACK)

        def listener(message):
            got.append((message.topic, message.reconsume_times))
            if message.reconsume_times < 2:
                raise RuntimeError("not yet")

        consumer = world.push_consumer(listener, start_from=StartFrom.FIRST)
        world.run(consumer.start())
        with capturedLogs():
            send(world, b"x", queue_id=0)
            # After 10 and 30 seconds.
            world.wait(75)
        assert got == [("T", 0), ("T", 1), ("T", 2)]
        headers = [request.header(ConsumerSendMsgBackRequestHeader) for request in sent_back]
        assert [header.max_reconsume_times for header in headers] == [16, 16]
        assert headers[0].origin_topic == "T"
        assert consumer.offset(queue(0)) == 1

    def test_a_message_that_cannot_be_given_back_is_tried_again_here(self, world):
        send(world, b"x", queue_id=0)
        for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
            world.answer(code, refuse)
        tries = []

        async def listener(message):
            tries.append(message.reconsume_times)
            if len(tries) == 1:
                raise RuntimeError("not yet")

        consumer = world.push_consumer(listener, start_from=StartFrom.FIRST)
        with capturedLogs():
            world.run(consumer.start())
            world.clock.advance(0)
            assert consumer.offset(queue(0)) == 0
            world.wait(5.1)
        assert tries == [0, 1]
        assert consumer.offset(queue(0)) == 1

    def test_nothing_is_left_of_a_message_that_waits_for_its_next_try(self, world):
        world.put(StoredMessage(topic="T", queue_id=0, body=b"x"))
        for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
            world.answer(code, refuse)
        consumer = world.push_consumer(fail, start_from=StartFrom.FIRST)
        with capturedLogs():
            world.run(consumer.start())
            world.wait(1)
            world.run(consumer.stop())
        world.wait(1)
        assert world.client_clock.getDelayedCalls() == []

    def test_a_message_of_a_broker_that_is_gone_comes_again_by_another(self, world):
        world.add_other()
        send(world, b"x", queue_id=0)
        got, held = [], Deferred()

        def listener(message):
            got.append((message.queue.broker_name, message.topic, message.reconsume_times))
            return None if message.reconsume_times else held

        consumer = world.push_consumer(listener, start_from=StartFrom.FIRST)
        world.run(consumer.start())
        world.wait(1)
        with capturedLogs():
            world.network.stop(world.address)
            held.errback(RuntimeError("not yet"))
            world.wait(15)
        assert got == [("broker-a", "T", 0), ("broker-b", "T", 1)]

    @pytest.mark.parametrize("broker", ["refuses", "hangs"])
    def test_what_cannot_be_given_back_holds_up_no_others(self, world, broker):
        world.add_other()
        send(world, *[b"poison"] * 20, queue_id=0)
        other = MessageQueue(topic="T", broker_name="broker-b", queue_id=0)
        world.run(world.producer().send_batch([Message("T", b"fine")] * 100, queue=other))
        handler = refuse if broker == "refuses" else hang
        world.answer(RequestCode.CONSUMER_SEND_MSG_BACK, handler)
        for each in (world.broker, world.other):
            each.listener.handlers[RequestCode.SEND_MESSAGE_V2] = handler
        fine = []

        def listener(message):
            if message.body == b"poison":
                raise RuntimeError("never")
            fine.append(message)

        consumer = world.push_consumer(listener, concurrency=5, start_from=StartFrom.FIRST)
        with capturedLogs():
            world.run(consumer.start())
            world.wait(2)
        assert len(fine) == 100
        assert consumer.offset(queue(0)) == 0

    def test_pulling_waits_while_a_thousand_messages_are_open(self, world):
        consumer = world.push_consumer(lambda message: Deferred(), start_from=StartFrom.FIRST)
        producer = world.producer()
        for _ in range(15):
            batch = [Message("T", b"x")] * 100
            world.run(producer.send_batch(batch, queue=queue(0)))
        world.run(consumer.start())
        world.wait(1)
        info = consumer.running_info().mq_table[queue(0)]
        assert 1000 < info.cached_msg_count <= 1000 + 32


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("error", [asyncio.CancelledError, CancelledError, SystemExit])
def test_a_listener_that_was_cancelled_gets_the_message_again(world, orderly, error):
    got = []

    def listener(message):
        got.append(message.body)
        if got == [b"1"]:
            raise error()

    send(world, b"1", b"2", queue_id=0)
    consumer = world.push_consumer(listener, orderly=orderly, start_from=StartFrom.FIRST)
    with capturedLogs():
        world.run(consumer.start())
        world.wait(15)
    assert got == ([b"1", b"1", b"2"] if orderly else [b"1", b"2", b"1"])
    assert consumer.offset(queue(0)) == 2


def test_pulls_go_on_behind_an_answer_that_makes_no_sense(world):
    got = []
    send(world, b"1", queue_id=0)
    consumer = world.push_consumer(
        lambda message: got.append(message.body), start_from=StartFrom.FIRST
    )
    before = world.answer(RequestCode.PULL_MESSAGE, lambda request, peer: request.response())
    with capturedLogs():
        world.run(consumer.start())
        world.wait(1)
        world.answer(RequestCode.PULL_MESSAGE, before)
        world.wait(4)
    assert got == [b"1"]


def test_pulling_waits_for_bodies_as_large_as_they_are_unpacked(world, monkeypatch):
    monkeypatch.setattr(process_queue, "MAX_AHEAD_BYTES", 5 << 20)
    held = []

    def listener(message):
        message.body = b""
        held.append(Deferred())
        return held[-1]

    def cached():
        info = consumer.running_info().mq_table[queue(0)]
        return info.cached_msg_count, info.cached_msg_size_in_mib

    send(world, *[bytes(3 << 20)] * 4, queue_id=0)
    consumer = world.push_consumer(listener, batch_size=1, start_from=StartFrom.FIRST)
    world.run(consumer.start())
    world.wait(1)
    assert cached() == (2, 6)
    for each in held:
        each.callback(None)
    world.wait(1)
    assert cached() == (2, 6)
    for each in held[2:]:
        each.callback(None)
    world.wait(1)
    assert cached() == (0, 0)


class TestSharing:
    def test_two_members_divide_the_queues_and_one_takes_over(self, world):
        first = world.push_consumer(lambda message: None)
        world.run(first.start())
        assert own(first) == [0, 1, 2, 3]
        second = world.push_consumer(lambda message: None)
        world.run(second.start())
        world.clock.advance(0)
        assert (own(first), own(second)) == ([0, 1], [2, 3])
        world.run(first.stop())
        world.clock.advance(0)
        assert own(second) == [0, 1, 2, 3]

    def test_a_new_route_is_noticed(self, world):
        consumer = world.push_consumer(lambda message: None)
        world.run(consumer.start())
        world.add_topic("T", 6)
        world.wait(51)
        assert own(consumer) == [0, 1, 2, 3, 4, 5]

    def test_a_broker_that_was_away_hears_of_the_group_again(self, world):
        got = []
        consumer = world.push_consumer(lambda message: got.append(message.body))
        world.run(consumer.start())
        with capturedLogs():
            world.network.stop(world.address)
            world.wait(1)
            assert world.members("workers") == []
            world.network.listen(world.address, world.broker.listener.factory)
            world.wait(41)
        assert world.members("workers") == ["client-1"]
        send(world, b"back")
        world.wait(1)
        assert got == [b"back"]
        assert own(consumer) == [0, 1, 2, 3]

    def test_a_stop_waits_for_the_listener(self, world):
        held = Deferred()
        consumer = world.push_consumer(lambda message: held, start_from=StartFrom.FIRST)
        world.run(consumer.start())
        send(world, b"x", queue_id=0)
        world.clock.advance(0)
        stopped = []
        consumer.stop().addCallback(stopped.append)
        world.wait(1)
        assert stopped == []
        held.callback(None)
        world.clock.advance(0)
        assert stopped == [None]
        assert world.broker.offsets.query("workers", "T", 0) == 1
        assert world.members("workers") == []

    def test_a_stop_waits_as_long_as_it_was_told(self, world):
        consumer = world.push_consumer(
            lambda message: Deferred(), start_from=StartFrom.FIRST, stop_seconds=1.0
        )
        world.run(consumer.start())
        send(world, b"x", queue_id=0)
        world.clock.advance(0)
        stopped = []
        consumer.stop().addCallback(stopped.append)
        world.wait(1.5)
        assert stopped == [None]

    @pytest.mark.parametrize("orderly", [False, True])
    def test_a_stop_waits_for_a_broker_that_hangs_once(self, world, orderly):
        world.add_topic("T", 16)
        consumer = world.push_consumer(fail, orderly=orderly, start_from=StartFrom.FIRST)
        world.run(consumer.start())
        assert len(own(consumer)) == 16
        for code in world.broker.listener.handlers:
            world.answer(code, hang)
        stopped = []
        with capturedLogs():
            consumer.stop().addCallback(stopped.append)
            world.wait(6.1 if orderly else 3.1)
        assert stopped == [None]

    def test_a_broker_that_hangs_holds_up_no_queues_and_offsets_of_others(self, world):
        world.add_other()
        for code in (RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET):
            world.answer(code, hang)
        consumer = world.push_consumer(lambda message: None)
        there = MessageQueue(topic="T", broker_name="broker-b", queue_id=0)
        with capturedLogs():
            consumer.start()
            world.wait(1)
            assert [each.broker_name for each in consumer.queues if each.topic == "T"] == (
                ["broker-b"] * 4
            )
            world.run(world.producer().send(Message("T", b"x"), queue=there))
            world.wait(8)
        assert world.other.offsets.query("workers", "T", 0) == 1

    def test_a_stop_leaves_nothing_behind(self, world):
        consumer = world.push_consumer(lambda message: None)
        world.run(consumer.start())
        world.run(consumer.stop())
        world.wait(1)
        assert world.client_clock.getDelayedCalls() == []

    def test_a_slow_commit_never_puts_back_the_next_owner(self, world):
        held = []

        def commit(request, peer):
            if not held:
                held.append(Deferred())
                return held[0].addCallback(lambda _: answer(request, peer))
            return answer(request, peer)

        first = world.push_consumer(lambda message: None, start_from=StartFrom.FIRST)
        world.run(first.start())
        send(world, b"1", queue_id=3)
        world.wait(1)
        answer = world.answer(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        world.wait(4.1)
        assert held
        second = world.push_consumer(lambda message: None, start_from=StartFrom.FIRST)
        world.run(second.start())
        world.wait(1)
        assert own(second) == [2, 3]
        world.broker.offsets.commit("workers", "T", 3, 2)
        held[0].callback(None)
        world.clock.advance(0)
        assert world.broker.offsets.query("workers", "T", 3) == 2


class TestOrderly:
    def owners(self, world):
        """Who holds each queue."""
        return [world.broker.locks.owner("workers", queue(number)) for number in range(4)]

    def test_each_key_comes_in_order_also_after_a_failure(self, world):
        sent_back = world.record(RequestCode.CONSUMER_SEND_MSG_BACK)
        got, failed = {}, set()

        def listener(message):
            key = message.properties["__SHARDINGKEY"]
            if message.body == b"2" and key not in failed:
                failed.add(key)
                raise RuntimeError("once more")
            got.setdefault(key, []).append(int(message.body))

        consumer = world.push_consumer(listener, orderly=True, start_from=StartFrom.FIRST)
        world.run(consumer.start())
        producer = world.producer()
        with capturedLogs():
            for number in range(5):
                for key in "abc":
                    message = Message("T", b"%d" % number, sharding_key=key)
                    world.run(producer.send(message, selector=by_key(key)))
            world.wait(2)
        assert got == {key: [0, 1, 2, 3, 4] for key in "abc"}
        assert sent_back == []

    def test_queues_that_another_has_locked_are_left_alone(self, world):
        world.broker.locks.lock("workers", [queue(1)], "somebody")
        consumer = world.push_consumer(lambda message: None, orderly=True)
        world.run(consumer.start())
        assert own(consumer) == [0, 2, 3]
        world.broker.locks.unlock("workers", [queue(1)], "somebody")
        world.wait(21)
        assert own(consumer) == [0, 1, 2, 3]

    def test_nothing_is_consumed_without_the_lock(self, world):
        got = []
        consumer = world.push_consumer(
            lambda message: got.append(message.body), orderly=True, start_from=StartFrom.FIRST
        )
        world.run(consumer.start())
        queues = [queue(queue_id) for queue_id in range(4)]
        world.broker.locks.unlock("workers", queues, "client-1")
        assert world.broker.locks.lock("workers", queues, "thief") == queues
        world.wait(21)
        send(world, b"x", queue_id=0)
        world.wait(2)
        assert got == []
        world.broker.locks.unlock("workers", queues, "thief")
        world.wait(21)
        assert got == [b"x"]

    def test_locks_are_given_back_at_the_stop(self, world):
        consumer = world.push_consumer(lambda message: None, orderly=True)
        world.run(consumer.start())
        assert self.owners(world) == ["client-1"] * 4
        world.run(consumer.stop())
        assert self.owners(world) == [None] * 4

    def test_a_queue_stays_locked_until_the_listener_is_done(self, world):
        held = Deferred()
        first = world.push_consumer(lambda message: held, orderly=True, start_from=StartFrom.FIRST)
        world.run(first.start())
        send(world, b"x", queue_id=3)
        world.wait(1)
        second = world.push_consumer(lambda message: None, orderly=True)
        world.run(second.start())
        # As a broker does with locks that nobody renews.
        for queue_id, owner in enumerate(self.owners(world)):
            world.broker.locks.unlock("workers", [queue(queue_id)], owner)
        world.wait(21)
        assert self.owners(world)[3] == "client-1"
        assert own(second) == [2]
        world.run(second.stop())
        world.wait(21)
        assert own(first) == [0, 1, 2], "one slow listener holds up no other queue"
        held.callback(None)
        world.wait(21)
        assert own(first) == [0, 1, 2, 3]
        assert world.broker.offsets.query("workers", "T", 3) == 1

    @pytest.mark.parametrize("tries", [0, 1, 2])
    def test_after_the_last_try_a_message_is_a_dead_letter(self, world, tries):
        got = []

        def listener(message):
            got.append(message.body)
            raise RuntimeError("never")

        consumer = world.push_consumer(
            listener, orderly=True, max_reconsume_times=tries, start_from=StartFrom.FIRST
        )
        world.run(consumer.start())
        # As at a broker that has forgotten the locks by which it knows ordered groups.
        world.broker.locks.unlock("workers", [queue(each) for each in range(4)], "client-1")
        with capturedLogs():
            send(world, b"x", queue_id=0)
            world.wait(60)
        assert len(got) == 1 + tries
        assert consumer.offset(queue(0)) == 1
        (dead,) = world.stored("%DLQ%workers")
        assert (dead.body, dead.reconsume_times) == (b"x", 1 + tries)
        assert parse_properties(dead.properties)["RETRY_TOPIC"] == "T"

    def test_a_message_of_which_nobody_makes_a_dead_letter_keeps_its_place(self, world):
        def send_it(request, peer):
            return before(request, peer) if may_send else refuse(request, peer)

        got, may_send = [], []

        def listener(message):
            got.append(message.body)
            if message.body == b"1":
                raise RuntimeError("never")

        send(world, b"1", b"2", queue_id=0)
        before = world.answer(RequestCode.SEND_MESSAGE_V2, send_it)
        consumer = world.push_consumer(
            listener, orderly=True, max_reconsume_times=0, start_from=StartFrom.FIRST
        )
        with capturedLogs():
            world.run(consumer.start())
            world.wait(3)
            assert set(got) == {b"1"}
            may_send.append(True)
            world.wait(2)
        assert got[-1] == b"2"
        assert [dead.body for dead in world.stored("%DLQ%workers")] == [b"1"]

    def test_a_broker_that_hangs_holds_up_no_locks_of_others(self, world):
        world.add_other()
        world.answer(RequestCode.LOCK_BATCH_MQ, hang)
        consumer = world.push_consumer(lambda message: None, orderly=True)
        with capturedLogs():
            consumer.start()
            world.wait(1)
        there = MessageQueue(topic="T", broker_name="broker-b", queue_id=0)
        assert world.other.locks.owner("workers", there) == "client-1"


class TestGoingOnElsewhere:
    """Queue 0 has three messages, the listener holds the second one as it comes first, and the
    queue goes on at another offset: as the broker's answer to a pull says, or a request of its."""

    @pytest.fixture(params=["pull", "request"])
    def move(self, world, request):
        def by_pull(offset):
            def moved(command, peer):
                if int(command.ext_fields["queueId"]) or command.ext_fields["topic"] != "T":
                    return answer(command, peer)
                world.answer(RequestCode.PULL_MESSAGE, answer)
                header = PullMessageResponseHeader(
                    suggest_which_broker_id=0, next_begin_offset=offset, min_offset=0, max_offset=9
                )
                return command.response(ResponseCode.PULL_OFFSET_MOVED, header=header)

            answer = world.answer(RequestCode.PULL_MESSAGE, moved)
            # The pull that waits at the broker ends.
            world.wait(16)

        def by_request(offset):
            body = encode_body(ResetOffsetBody(offset_table={queue(0): offset}))
            header = ResetOffsetRequestHeader(topic="T", group="workers", timestamp=0)
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            command = RemotingCommand.request(code, header, body)
            (client_id,) = world.members("workers")
            peer = world.member("workers", client_id).peer
            assert world.run(peer.request(command, 3)).code == 0

        return by_pull if request.param == "pull" else by_request

    def started(self, world, **options):
        got, held = [], []

        def listener(message):
            got.append(message.body)
            if message.body == b"2" and len(held) < 2:
                held.append(Deferred())
                return held[-1]
            return None

        send(world, b"1", b"2", b"3", queue_id=0)
        consumer = world.push_consumer(listener, start_from=StartFrom.FIRST, **options)
        world.run(consumer.start())
        world.wait(1)
        return consumer, got, held

    def kept(self, world):
        return world.broker.offsets.query("workers", "T", 0)

    def test_what_was_open_counts_no_more(self, world, move):
        consumer, got, held = self.started(world)
        with capturedLogs():
            move(0)
        world.wait(1)
        assert got == [b"1", b"2", b"3"] * 2
        assert consumer.offset(queue(0)) == 1
        held[0].callback(None)
        world.wait(6)
        assert (consumer.offset(queue(0)), self.kept(world)) == (1, 1)
        held[1].callback(None)
        world.wait(6)
        assert (consumer.offset(queue(0)), self.kept(world)) == (3, 3)
        assert consumer.running_info().mq_table[queue(0)].cached_msg_count == 0

    def test_what_fails_afterwards_is_not_given_back(self, world, move):
        sent_back = world.record(RequestCode.CONSUMER_SEND_MSG_BACK)
        _, got, held = self.started(world)
        with capturedLogs():
            move(0)
            held[0].errback(RuntimeError("failed"))
            world.wait(30)
        assert (got, sent_back) == ([b"1", b"2", b"3"] * 2, [])

    def test_the_end_is_kept_although_a_message_is_open(self, world, move):
        consumer, got, held = self.started(world)
        with capturedLogs():
            move(3)
        send(world, b"4", queue_id=0)
        world.wait(6)
        assert got == [b"1", b"2", b"3", b"4"]
        assert (consumer.offset(queue(0)), self.kept(world)) == (4, 4)
        held[0].callback(None)
        assert consumer.offset(queue(0)) == 4

    def test_the_order_begins_anew_behind_the_open_message(self, world, move):
        consumer, got, held = self.started(world, orderly=True)
        with capturedLogs():
            move(0)
        assert (got, consumer.offset(queue(0))) == ([b"1", b"2"], 0)
        held[0].callback(None)
        world.wait(1)
        assert got == [b"1", b"2", b"1", b"2"]
        held[1].callback(None)
        world.wait(1)
        assert got == [b"1", b"2", b"1", b"2", b"3"]
        assert consumer.offset(queue(0)) == 3

    def test_the_start_is_kept_where_pulls_had_committed_more(self, world, move):
        _, _, held = self.started(world)
        held[0].callback(None)
        send(world, b"4", queue_id=0)
        world.wait(1)
        with capturedLogs():
            move(0)
        world.wait(6)
        assert len(held) == 2
        assert self.kept(world) == 1


class TestBroadcast:
    def test_each_consumer_gets_all_and_keeps_its_offsets_in_a_file(self, world, tmp_path):
        send(world, b"1", b"2")
        got = [[], []]

        def start(number):
            consumer = world.push_consumer(
                lambda message: got[number].append(message.body),
                broadcast=True,
                start_from=StartFrom.FIRST,
                offset_file=str(tmp_path / f"offsets-{number}.json"),
            )
            world.run(consumer.start())
            world.clock.advance(0)
            return consumer

        first, second = start(0), start(1)
        assert own(first) == own(second) == [0, 1, 2, 3]
        assert [sorted(bodies) for bodies in got] == [[b"1", b"2"]] * 2
        world.run(first.stop())
        send(world, b"3")
        start(0)
        assert sorted(got[0]) == [b"1", b"2", b"3"]
        assert world.broker.offsets.topics_of("workers") == set()


class TestDamagedBodies:
    """Offset 1 of queue 0 is damaged; 0 and 2 are not."""

    DEAD = "%DLQ%workers"

    def fill(self, world, damage="packed", topic="T"):
        flag = compression_flag(CompressionType.ZLIB) if damage == "packed" else 0
        for body, sys_flag in ((b"1", 0), (b"torn", flag), (b"3", 0)):
            world.put(
                StoredMessage(
                    topic=topic,
                    queue_id=0,
                    body=body,
                    properties=b"UNIQ_KEY\x01ID-" + body + b"\x02",
                    sys_flag=sys_flag,
                )
            )
        if damage == "crc":

            def damaged(request, peer):
                response = pull(request, peer)
                if isinstance(response, RemotingCommand):
                    response.body = response.body.replace(b"torn\x01T", b"tORN\x01T")
                return response

            pull = world.answer(RequestCode.PULL_MESSAGE, damaged)

    def consumer(self, world, got, **options):
        options = {"start_from": StartFrom.FIRST} | options
        return world.push_consumer(lambda message: got.append(message.body), **options)

    def errors(self, events):
        return [formatEvent(event) for event in events if event["log_level"] is LogLevel.error]

    def dead(self, world):
        return [message.body for message in world.stored(self.DEAD)]

    @pytest.mark.parametrize("orderly", [False, True])
    @pytest.mark.parametrize(
        ("damage", "reason"), [("packed", "ZLIB body that cannot be read"), ("crc", "CRC")]
    )
    def test_the_queue_goes_on_and_the_broker_keeps_it(self, world, damage, reason, orderly):
        sent_back = world.record(RequestCode.CONSUMER_SEND_MSG_BACK)
        self.fill(world, damage)
        got = []
        consumer = self.consumer(world, got, orderly=orderly)
        with capturedLogs() as events:
            world.run(consumer.start())
            send(world, b"4", queue_id=0)
            world.wait(30)
        assert got == [b"1", b"3", b"4"]
        assert consumer.offset(queue(0)) == 4
        assert self.dead(world) == [b"torn"]
        (header,) = (request.header(ConsumerSendMsgBackRequestHeader) for request in sent_back)
        assert header.delay_level == -1
        (said,) = self.errors(events)
        for part in ("ID-torn", "offset 1 of T, queue 0 of broker-a", reason, self.DEAD):
            assert part in said

    def test_a_broadcast_leaves_it_out_and_says_so(self, world):
        sent_back = world.record(RequestCode.CONSUMER_SEND_MSG_BACK)
        self.fill(world)
        got = []
        consumer = self.consumer(world, got, broadcast=True)
        with capturedLogs() as events:
            world.run(consumer.start())
            world.wait(1)
        assert got == [b"1", b"3"]
        assert consumer.offset(queue(0)) == 3
        assert sent_back == []
        (said,) = self.errors(events)
        assert "ID-torn" in said and "left out" in said

    def test_in_the_dead_letter_queue_itself_it_stays(self, world):
        sent_back = world.record(RequestCode.CONSUMER_SEND_MSG_BACK)
        world.add_topic(self.DEAD, 1)
        self.fill(world, topic=self.DEAD)
        got = []
        consumer = self.consumer(world, got)
        consumer.subscribe(self.DEAD)
        with capturedLogs() as events:
            world.run(consumer.start())
            world.wait(1)
        assert got == [b"1", b"3"]
        assert sent_back == []
        (said,) = self.errors(events)
        assert "left out" in said

    def test_a_broker_that_does_not_answer_gets_it_later(self, world):
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        send_back = world.answer(code, lambda request, peer: Deferred())
        self.fill(world)
        got = []
        consumer = self.consumer(world, got)
        with capturedLogs() as events:
            world.run(consumer.start())
            world.wait(300)
            assert (got, consumer.offset(queue(0))) == ([b"1", b"3"], 1)
            assert self.errors(events) == []
            world.answer(code, send_back)
            world.wait(11)
        assert self.dead(world) == [b"torn"]
        assert consumer.offset(queue(0)) == 3
        assert len(self.errors(events)) == 1

    @pytest.mark.parametrize("orderly", [False, True])
    def test_what_the_broker_keeps_refusing_is_passed_over(self, world, orderly):
        def refuse(request, peer):
            refused.append(request)
            return request.response(1, "no such message")

        refused = []
        world.answer(RequestCode.CONSUMER_SEND_MSG_BACK, refuse)
        self.fill(world)
        got = []
        consumer = self.consumer(world, got, orderly=orderly)
        with capturedLogs() as events:
            world.run(consumer.start())
            world.wait(2)
            assert consumer.offset(queue(0)) == 1
            world.wait(60)
        assert got == [b"1", b"3"]
        assert consumer.offset(queue(0)) == 3
        assert len(refused) == 10
        (said,) = self.errors(events)
        for part in ("ID-torn", "ZLIB", "no such message", "passed over"):
            assert part in said

    def test_one_whose_tag_nobody_asked_for_is_left_to_others(self, world):
        # "Aa" and "BB" have one hash code in Java, so a broker may send both.
        flag = compression_flag(CompressionType.ZLIB)
        for tag in (b"Aa", b"BB"):
            world.put(
                StoredMessage(
                    topic="T",
                    queue_id=0,
                    body=b"torn " + tag,
                    properties=b"TAGS\x01" + tag + b"\x02",
                    sys_flag=flag,
                )
            )

        def without_filter(request, peer):
            request.ext_fields["subscription"] = "*"
            return answer(request, peer)

        answer = world.answer(RequestCode.PULL_MESSAGE, without_filter)
        consumer = self.consumer(world, [])
        consumer.subscribe("T", "BB")
        with capturedLogs() as events:
            world.run(consumer.start())
            world.wait(1)
        assert self.dead(world) == [b"torn BB"]
        assert len(self.errors(events)) == 1
        reader = QueuePuller(consumer.session, "readers")
        pull = reader.pull(queue(0), 0, expression="BB", keep_damaged=True)
        pulled = world.run(Deferred.fromCoroutine(pull))
        assert [message.body for message in pulled.messages] == [b"torn BB"]
        assert list(pulled.problems) == [1]


class TestWhatBrokersAsk:
    @pytest.fixture
    def started(self, world):
        got = []
        consumer = world.push_consumer(
            lambda message: got.append(message.body), start_from=StartFrom.FIRST
        )
        world.run(consumer.start())
        send(world, b"1", b"2", b"3", queue_id=0)
        world.clock.advance(0)
        return consumer, got, world.member("workers").peer

    def test_a_reset_goes_on_elsewhere(self, world, started):
        consumer, got, peer = started
        body = encode_body(ResetOffsetBody(offset_table={queue(0): 1}))
        header = ResetOffsetRequestHeader(topic="T", group="workers", timestamp=0)
        command = RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
        response = world.run(peer.request(command, 3))
        world.clock.advance(0)
        assert response.code == 0
        assert got == [b"1", b"2", b"3", b"2", b"3"]
        assert consumer.offset(queue(0)) == 3

    def test_a_reset_stands_although_queues_are_divided_meanwhile(self, world):
        got, held = [], Deferred()

        def listener(message):
            got.append(message.body)
            return held if message.body == b"3" else None

        consumer = world.push_consumer(listener, start_from=StartFrom.FIRST)
        world.run(consumer.start())
        send(world, b"1", b"2", b"3", queue_id=0)
        world.wait(6)
        assert world.broker.offsets.query("workers", "T", 0) == 2
        body = encode_body(ResetOffsetBody(offset_table={queue(0): 1}))
        header = ResetOffsetRequestHeader(topic="T", group="workers", timestamp=0)
        command = RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
        world.member("workers").peer.send_oneway(command)
        world.clock.advance(0)
        world.run(consumer.rebalance())
        held.callback(None)
        world.wait(1)
        assert got == [b"1", b"2", b"3", b"2", b"3"]

    def test_positions(self, world, started):
        header = GetConsumerStatusRequestHeader(topic="T", group="workers")
        command = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        response = world.run(started[2].request(command, 3))
        table = decode_body(ConsumerStatusBody, response.body).message_queue_table
        assert table == {queue(0): 3, queue(1): 0, queue(2): 0, queue(3): 0}

    def test_running_info(self, world, started):
        header = GetConsumerRunningInfoRequestHeader(consumer_group="workers", client_id="client-1")
        command = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        response = world.run(started[2].request(command, 3))
        info = decode_body(ConsumerRunningInfo, response.body)
        assert info.mq_table[queue(0)].commit_offset == 3
        assert {data.topic for data in info.subscription_set} == {"T", "%RETRY%workers"}

    def test_a_group_that_is_not_here_is_told(self, world, started):
        header = GetConsumerStatusRequestHeader(topic="T", group="strangers")
        command = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        response = world.run(started[2].request(command, 3))
        assert response.code == 1 and "strangers" in response.remark


def test_two_groups_share_a_session_and_one_group_cannot_stand_twice(world):
    session = world.session()

    def consumer(group):
        made = PushConsumer(
            world.client_clock, world.names_address, group, lambda message: None, session=session
        )
        made.subscribe("T")
        return made

    first, second, again = consumer("one"), consumer("two"), consumer("one")
    world.run(first.start())
    world.run(second.start())
    assert own(first) == own(second) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="one"):
        world.run(again.start())
    world.run(first.stop())
    assert world.members("two") == [session.client_id]
    world.run(second.stop())
    world.wait(1)
    assert world.client_clock.getDelayedCalls() == [], "the refused one keeps nothing open"
