import pytest

from rocketmq_tw.client.errors import BrokerError, NoRouteError
from rocketmq_tw.client.message import Message, PullStatus
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import BodyError

QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=1)


def no_offset(request, peer):
    """As a broker answers once the begin of the queue is not at hand any more."""
    return request.response(ResponseCode.QUERY_NOT_FOUND, "nothing was committed")


@pytest.fixture
def consumer(world):
    producer, consumer = world.producer(), world.pull_consumer()
    assert QUEUE in world.run(consumer.queues("T"))
    for number in range(50):
        tag = "even" if number % 2 == 0 else "odd"
        message = Message("T", b"%d" % number, tags=tag, keys=f"key{number}")
        world.run(producer.send(message, queue=QUEUE))
    return consumer


def test_queues_are_sorted_and_readable(world, consumer):
    world.names.register(world.other_address, "broker-0", "T", 2, perm=4)
    world.names.register("10.0.0.4:10911", "broker-1", "T", 2, perm=2)
    fresh = world.pull_consumer()
    assert [(queue.broker_name, queue.queue_id) for queue in world.run(fresh.queues("T"))] == [
        ("broker-0", 0),
        ("broker-0", 1),
        *(("broker-a", queue_id) for queue_id in range(4)),
    ]


def test_an_unknown_topic_has_no_route(world, consumer):
    with pytest.raises(NoRouteError, match="NONE"):
        world.run(consumer.queues("NONE"))


def test_messages_come_in_order_up_to_the_count(world, consumer):
    result = world.run(consumer.pull(QUEUE, 10, max_messages=5))
    assert result.status is PullStatus.FOUND
    assert [message.body for message in result.messages] == [b"10", b"11", b"12", b"13", b"14"]
    assert (result.next_offset, result.min_offset, result.max_offset) == (15, 0, 50)
    first = result.messages[0]
    assert (first.topic, first.queue, first.queue_offset) == ("T", QUEUE, 10)
    assert (first.tags, first.keys) == ("even", ["key10"])
    assert first.message_id == first.properties["UNIQ_KEY"]
    assert first.offset_message_id.endswith(f"{world.stored('T')[10].physical_offset:016X}")


def test_tags_are_filtered(world, consumer):
    result = world.run(consumer.pull(QUEUE, 0, expression="odd", max_messages=6))
    assert [message.body for message in result.messages] == [b"1", b"3", b"5", b"7", b"9", b"11"]
    assert result.next_offset == 12
    result = world.run(consumer.pull(QUEUE, 0, expression="none", max_messages=6))
    assert (result.status, result.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 50)


def test_a_tag_with_the_same_hash_code_is_left_out(world, consumer):
    # "Aa" and "BB" have one hash code in Java, so a broker may send both.
    producer = world.producer()
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=2)
    for tag in ("Aa", "BB"):
        world.run(producer.send(Message("T", tag.encode(), tags=tag), queue=queue))

    def without_filter(request, peer):
        request.ext_fields["subscription"] = "*"
        return pull(request, peer)

    pull = world.answer(RequestCode.PULL_MESSAGE, without_filter)
    reader = world.pull_consumer()
    world.run(reader.queues("T"))
    result = world.run(reader.pull(queue, 0, expression="BB"))
    assert [message.body for message in result.messages] == [b"BB"]


def test_the_end_and_beyond(world, consumer):
    at_end = world.run(consumer.pull(QUEUE, 50))
    assert (at_end.status, at_end.messages) == (PullStatus.NO_NEW_MESSAGE, [])
    beyond = world.run(consumer.pull(QUEUE, 1000))
    assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 50)


def test_a_held_pull_gets_the_next_message(world, consumer):
    outcome = []
    consumer.pull(QUEUE, 50, suspend_seconds=15).addCallback(outcome.append)
    world.wait(10)
    assert outcome == []
    world.run(world.producer().send(Message("T", b"new"), queue=QUEUE))
    world.clock.advance(0)
    assert [message.body for message in outcome[0].messages] == [b"new"]


def test_a_held_pull_ends_empty(world, consumer):
    outcome = []
    consumer.pull(QUEUE, 50, suspend_seconds=15).addCallback(outcome.append)
    # The broker looks at reads that it holds every five seconds.
    world.wait(21)
    assert outcome[0].status is PullStatus.NO_NEW_MESSAGE


def test_offsets(world, consumer):
    assert world.run(consumer.max_offset(QUEUE)) == 50
    assert world.run(consumer.min_offset(QUEUE)) == 0
    assert world.run(consumer.search_offset(QUEUE, 0)) == 0
    assert world.run(consumer.committed_offset(QUEUE)) == 0, "the whole queue is at hand"
    world.run(consumer.commit_offset(QUEUE, 7))
    assert world.run(consumer.committed_offset(QUEUE)) == 7


def test_a_group_without_an_offset_has_none(world, consumer):
    world.answer(RequestCode.QUERY_CONSUMER_OFFSET, no_offset)
    assert world.run(consumer.committed_offset(QUEUE)) is None


def test_a_refusal_is_an_error_with_code_and_address(world, consumer):
    del world.broker.listener.handlers[RequestCode.PULL_MESSAGE]
    with pytest.raises(BrokerError, match=f"{world.address} answered 3"):
        world.run(consumer.pull(QUEUE, 0))


@pytest.mark.parametrize("damage", ["cut", "crc", "size", "magic"])
def test_a_damaged_record_is_an_error(world, consumer, damage):
    record = bytearray(world.broker.store.read_queue("T", 1, 0, 1, 1 << 20).data)
    if damage == "cut":
        del record[-1]
    else:
        record[{"size": 3, "magic": 7, "crc": 11}[damage]] ^= 1

    def damaged(request, peer):
        response = pull(request, peer)
        response.body = bytes(record)
        return response

    pull = world.answer(RequestCode.PULL_MESSAGE, damaged)
    reader = world.pull_consumer()
    world.run(reader.queues("T"))
    with pytest.raises(BodyError, match="no sound record at byte 0"):
        world.run(reader.pull(QUEUE, 0))


def test_the_group_is_seen_while_it_runs(world, consumer):
    world.run(consumer.start())
    assert world.members("readers") == [consumer.session.client_id]
    world.run(consumer.stop())
    assert world.members("readers") == []
