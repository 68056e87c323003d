import pytest
from twisted.internet.task import Clock

from rocketmq_tw.proxy.avoided import AVOID_SECONDS
from rocketmq_tw.proxy.messaging.queues import WriteQueues, consistent_hash
from rocketmq_tw.wire.bodies.route import BrokerData, TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicQueueMappingInfo
from tests.support.proxy import PlayedBrokers, answer_of


def route(brokers: dict[str, int], **fields: int) -> TopicRouteData:
    played = PlayedBrokers()
    played.add_topic("T", brokers, **fields)
    return answer_of(played.route("T"))


def names(queues: list) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_the_consistent_hash_is_guavas() -> None:
    first = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
    assert [consistent_hash(number, 100) for number in range(20)] == first
    assert consistent_hash(10863919174838991, 11) == 6
    assert consistent_hash(2016238256797177309, 11) == 3
    assert consistent_hash(1673758223894951030, 11) == 5
    assert consistent_hash(2, 100001) == 80343
    assert consistent_hash(2201, 100001) == 22152
    assert consistent_hash(2202, 100001) == 15018
    # A negative number, as hash codes often are.
    assert consistent_hash(-1207111310, 1000003) == 178640


@pytest.mark.parametrize("number", [0, 1, -1, 1 << 31, -(1 << 31), 123456789])
def test_one_more_bucket_moves_nothing_but_to_itself(number: int) -> None:
    for buckets in range(1, 200):
        before, after = consistent_hash(number, buckets), consistent_hash(number, buckets + 1)
        assert after in (before, buckets)


def test_queues_are_those_of_masters_by_name_and_id() -> None:
    found = route({"b": 2, "a": 1, "c": 1})
    found.broker_datas[2] = BrokerData(broker_name="c", broker_addrs={1: "c.example:10911"})
    queues = WriteQueues(Clock())
    assert names(queues.of("T", found)) == [("a", 0), ("b", 0), ("b", 1)]
    found.order_topic_conf = "b:1;a:2;c:3"
    assert names(WriteQueues(Clock()).of("T", found)) == [("a", 0), ("a", 1), ("b", 0)]
    assert WriteQueues(Clock()).of("T", route({"a": 1}, perm=4)) == []


def test_queues_of_a_static_topic_are_their_leaders_and_keep_their_order() -> None:
    found = route({"a": 2, "b": 2})
    led = {"b": {0: 1}, "a": {1: 0}}
    found.topic_queue_mapping_by_broker = {
        name: TopicQueueMappingInfo(total_queues=3, bname=name, epoch=1, curr_id_map=ids)
        for name, ids in led.items()
    }
    assert names(WriteQueues(Clock()).of("T", found)) == [("b", 0), ("a", 1)]


def test_queues_are_remembered_until_the_route_is_another() -> None:
    queues, old, new = WriteQueues(Clock()), route({"a": 1}), route({"a": 2})
    assert queues.of("T", old) is queues.of("T", old)
    assert names(queues.of("T", new)) == [("a", 0), ("a", 1)]


def test_a_message_group_has_one_queue() -> None:
    queues = WriteQueues(Clock())
    every = queues.of("T", route({"a": 4, "b": 4}))
    found = [queues.of_group(every, group) for group in ("b", "order-1", "group-7", "\u00e4")]
    assert names(found) == [("b", 1), ("a", 3), ("b", 3), ("b", 0)]
    assert len({str(queues.of_group(every, f"group-{i}")) for i in range(100)}) == 8


def test_queues_come_in_turn_and_failed_brokers_later() -> None:
    clock = Clock()
    queues = WriteQueues(clock)
    every = queues.of("T", route({"a": 2, "b": 2}))
    assert sorted(names([queues.next(every) for _ in range(4)])) == names(every)
    assert {queues.next(every, "a").broker_name for _ in range(8)} == {"b"}
    queues.avoid("b")
    assert {queues.next(every).broker_name for _ in range(8)} == {"a"}
    queues.avoid("a")
    assert {queues.next(every).broker_name for _ in range(8)} == {"a", "b"}
    clock.advance(AVOID_SECONDS)
    assert {queues.next(every).broker_name for _ in range(8)} == {"a", "b"}
