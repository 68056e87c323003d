"""The parts that know neither reactor nor network."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.client.decoding import decode_messages
from rocketmq_tw.client.preparing import process_unique_ids
from rocketmq_tw.client.process_queue import ProcessQueue
from rocketmq_tw.client.routes import (
    address_of,
    allocate_averagely,
    default_topic_route,
    publish_queues,
)
from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import BrokerData, QueueData, TopicRouteData

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)

# As stock's AllocateMessageQueueAveragely divides them.
STOCK_SHARES = {
    (8, 3): [[0, 1, 2], [3, 4, 5], [6, 7]],
    (2, 3): [[0], [1], []],
    (4, 4): [[0], [1], [2], [3]],
    (10, 4): [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]],
}


def test_shares_are_stocks():
    for (queues, members), shares in STOCK_SHARES.items():
        names = [f"c{number}" for number in range(members)]
        assert [allocate_averagely(list(range(queues)), names, name) for name in names] == shares


@given(queues=st.integers(0, 100), members=st.integers(1, 20))
def test_shares_cover_all_queues_once_and_evenly(queues, members):
    names = [f"c{number}" for number in range(members)]
    shares = [allocate_averagely(list(range(queues)), names, name) for name in names]
    assert list(chain.from_iterable(shares)) == list(range(queues))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_who_is_no_member_has_no_share():
    assert allocate_averagely([1, 2], ["a", "b"], "c") == []


def route(**brokers):
    return TopicRouteData(
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)
            for name, (read, write, perm, _) in brokers.items()
        ],
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs={id_: f"{name}:{id_}" for id_ in ids})
            for name, (_, _, _, ids) in brokers.items()
        ],
    )


def names(queues):
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def test_queues_to_send_to_are_writable_with_a_master():
    data = route(b=(1, 2, 6, [0, 1]), a=(2, 1, 2, [0]), c=(1, 1, 6, [1]), d=(1, 1, 4, [0]))
    assert names(publish_queues("T", data)) == ["a0", "b0", "b1"]


def test_an_order_configuration_decides_alone():
    data = route(a=(4, 4, 6, [0]))
    data.order_topic_conf = "x:2;y:1"
    assert names(publish_queues("T", data)) == ["x0", "x1", "y0"]


def test_a_new_topic_has_at_most_the_default_number_of_queues():
    default = route(a=(8, 8, 7, [0]), b=(2, 2, 7, [0]))
    made = default_topic_route(default, 4)
    assert names(publish_queues("N", made)) == ["a0", "a1", "a2", "a3", "b0", "b1"]
    assert default.queue_datas[0].read_queue_nums == 8


def test_addresses_of_brokers():
    data = route(a=(1, 1, 6, [0, 1]), b=(1, 1, 6, [2])).broker_datas
    assert address_of(data, "a") == "a:0"
    assert address_of(data, "a", 1) == "a:1"
    assert address_of(data, "b") == "b:2", "another one where the master is missing"
    assert address_of(data, "b", only=True) is None
    assert address_of(data, "c") is None


def message(offset, body=b"x" * 10, **rest):
    return StoredMessage(topic="T", queue_id=0, body=body, queue_offset=offset, **rest)


def decoded(*messages):
    return decode_messages(b"".join(map(encode_record, messages)), QUEUE)


def test_records_become_messages():
    flag = compression_flag(CompressionType.ZLIB)
    stored = [
        message(
            5,
            properties=b"TAGS\x01a\x02KEYS\x01x y\x02",
            born_host=("1.2.3.4", 5),
            physical_offset=77,
            reconsume_times=2,
            flag=9,
        ),
        message(6, compress(b"packed" * 100, CompressionType.ZLIB), sys_flag=flag),
        message(7, b"", born_host=("::1", 80), store_host=("fe80::1", 81)),
    ]
    first, packed, empty = decoded(*stored)
    assert (first.topic, first.queue, first.queue_offset, first.physical_offset) == (
        "T",
        QUEUE,
        5,
        77,
    )
    assert (first.tags, first.keys, first.born_host) == ("a", ["x", "y"], ("1.2.3.4", 5))
    assert (first.reconsume_times, first.flag) == (2, 9)
    assert packed.body == b"packed" * 100
    assert (empty.body, empty.born_host, empty.store_host) == (b"", ("::1", 80), ("fe80::1", 81))
    assert empty.tags is None and empty.keys == []
    assert len(empty.offset_message_id) == 56


@given(st.permutations(range(5)))
def test_all_before_the_commit_offset_is_done(order):
    messages = decoded(*(message(10 + number) for number in range(5)))
    queue = ProcessQueue(10)
    queue.add(messages, 15)
    done = set()
    for number in order:
        queue.done(messages[number])
        done.add(number)
        first_open = min((n for n in range(5) if n not in done), default=5)
        assert queue.commit_offset == 10 + first_open
    assert len(queue) == 0 and queue.size == 0 and not queue.full


def test_a_gap_that_a_filter_left_is_committed_over():
    queue = ProcessQueue(10)
    queue.add([], 20)
    assert queue.commit_offset == queue.next_offset == 20


def test_a_queue_is_full_by_count_size_and_span():
    by_count = ProcessQueue(0)
    by_count.add(decoded(*(message(number) for number in range(1001))), 1001)
    assert by_count.full
    by_size = ProcessQueue(0)
    for number, large in enumerate(decoded(message(0), message(1))):
        assert not by_size.full
        large.body = bytes(60 * 1024 * 1024)
        by_size.add([large], number + 1)
    assert by_size.full
    by_span = ProcessQueue(0)
    by_span.add(decoded(message(0), message(2001)), 2002)
    assert by_span.full


def test_unique_ids_of_the_same_address_and_process_id_differ():
    """As in two containers, each of which has its client as process 1."""
    ids = {process_unique_ids().next()[:-12] for _ in range(8)}
    assert len(ids) == 8
    assert len({text[:-8] for text in ids}) == 1
