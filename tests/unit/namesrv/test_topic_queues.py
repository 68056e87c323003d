"""Topics and brokers find each other, and a change costs the same in a small and a large table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv import topic_queues
from rocketmq_tw.namesrv.brokers import Registration
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.namesrv.topic_queues import TopicQueues
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.route import QueueData
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable, TopicQueueMappingInfo

NAMES = st.sampled_from("abc")
TOPICS = st.sampled_from(["T1", "T2", "T3", "T4"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), TOPICS, NAMES),
        st.tuples(st.just("map"), TOPICS, NAMES),
        st.tuples(st.just("remove"), TOPICS, NAMES),
        st.tuples(st.just("remove_broker"), TOPICS, NAMES),
        st.tuples(st.just("names"), TOPICS, NAMES),
    )
)


@given(STEPS)
def test_both_sides_always_agree(steps: list[tuple[str, str, str]]) -> None:
    queues = TopicQueues()
    has: set[tuple[str, str]] = set()
    mapped: set[tuple[str, str]] = set()
    for what, topic, name in steps:
        if what == "put":
            queues.put(topic, QueueData(broker_name=name))
            has.add((topic, name))
        elif what == "map":
            queues.put_mapping(topic, name, TopicQueueMappingInfo())
            mapped |= {(topic, name)} & has
        elif what == "remove":
            assert queues.remove(topic, name) is ((topic, name) in has)
            has.discard((topic, name))
        elif what == "remove_broker":
            all_steps(queues.remove_broker(name))
            has = {one for one in has if one[1] != name}
        else:
            assert names(queues) == sorted({topic for topic, _ in has})
        mapped &= has
    assert len(queues) == len(has)
    assert names(queues) == sorted({topic for topic, _ in has})
    for name in "abc":
        topics = {topic for topic, of in has if of == name}
        assert queues.of_broker(name) == topics
        assert queues.new_of(name, ["T1", "T2"])[0] == len({"T1", "T2"} - topics)
        assert queues.count_of(name) == len(topics)
        all_steps(queues.change_permission(name, lambda perm: perm + 1))
        assert all(queues.of_topic(topic)[name].perm == 1 for topic in topics)
    for topic in ("T1", "T2", "T3", "T4"):
        assert queues.of_topic(topic).keys() == {name for of, name in has if of == topic}
        assert set(queues.mappings(topic) or ()) == {name for of, name in mapped if of == topic}
    for name in "abc":
        all_steps(queues.remove_broker(name))
    assert queues.size == len(queues) == 0


@given(STEPS)
def test_topics_are_in_order_however_many_came_and_went(steps: list[tuple[str, str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_queues, "_RUN", 1)
        test_both_sides_always_agree.hypothesis.inner_test(steps)  # type: ignore[attr-defined]


def test_topics_that_come_and_go_take_no_room_while_nobody_asks_for_them() -> None:
    queues = TopicQueues()
    queues.put("stays", QueueData(broker_name="a"))
    for number in range(30_000):
        queues.put(f"T{number}", QueueData(broker_name="a"))
        queues.remove(f"T{number}", "a")
        assert len(queues._came) <= 5_002
    queues.put("new", QueueData(broker_name="a"))
    assert names(queues) == ["new", "stays"]
    queues.put("last", QueueData(broker_name="a"))
    assert names(queues) == ["last", "new", "stays"]


def all_steps(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def names(queues: TopicQueues) -> list[str]:
    found: list[str] = []
    all_steps(queues.names(found))
    return found


def steps_of(work: Callable[[], object]) -> int:
    """How many byte codes `work` takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def registration(broker: int, topics: list[str], version: int = 1) -> Registration:
    configs = {topic: TopicConfig(topic_name=topic) for topic in topics}
    return Registration(
        cluster=f"c{broker % 50}",
        broker_name=f"b{broker}",
        broker_id=0,
        address=f"10.0.0.1:{broker}",
        owner=f"connection {broker}",
        topics=TopicConfigTable(
            topic_config_table=configs, data_version=DataVersion(counter=version)
        ),
    )


def register(table: RouteTable, new: Registration) -> None:
    all_steps(table.register(new, 0)[1])


def table_of(brokers: int) -> RouteTable:
    table = RouteTable(NamesrvConfig(delete_topic_with_broker_registration=True))
    for broker in range(brokers):
        topics = [f"T{broker}-{number}" for number in range(5)]
        register(table, registration(broker, topics))
    return table


CHANGES: dict[str, Callable[[RouteTable], object]] = {
    "one more topic": lambda table: register(
        table, registration(1, [*(f"T1-{number}" for number in range(5)), "new"], 2)
    ),
    "fewer topics": lambda table: register(table, registration(1, ["T1-1", "T1-2"], 2)),
    "another broker": lambda table: register(table, registration(5000, ["T", "U"])),
    "a broker leaves": lambda table: table.unregister("c1", "10.0.0.1:1", "b1"),
    "a connection is lost": lambda table: list(table.lose("connection 1")),
    "no more writes": lambda table: all_steps(table.set_writable("b1", False)[1]),
    "a topic is deleted": lambda table: table.delete_topic("T1-1"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_looks_at_nothing_else(what: str) -> None:
    tables = table_of(60), table_of(1000)
    small, large = (steps_of(lambda table=table: CHANGES[what](table)) for table in tables)
    assert 20 < large <= small + 20


def test_mappings_are_taken_in_bit_by_bit_as_topics_are() -> None:
    table = RouteTable(NamesrvConfig())
    topics = [f"T{number}" for number in range(3_000)]
    new = registration(1, topics)
    new.topics.topic_queue_mapping_info_map = {
        topic: TopicQueueMappingInfo(topic=topic, bname="b1") for topic in topics
    }

    def mapped() -> int:
        return sum(bool(table.queues.mappings(topic)) for topic in topics)

    taken, most = 0, 0
    for _ in table.register(new, 0)[1]:
        most = max(most, mapped() - taken)
        taken = mapped()
    assert mapped() == len(topics)
    assert max(most, len(topics) - taken) <= 500


def test_mappings_of_a_broker_that_goes_meanwhile_leave_nothing() -> None:
    table = RouteTable(NamesrvConfig())
    topics = [f"T{number}" for number in range(3_000)]
    new = registration(1, topics)
    new.topics.topic_queue_mapping_info_map = {
        topic: TopicQueueMappingInfo(topic=topic, bname="b1") for topic in topics
    }
    for _ in table.register(new, 0)[1]:
        if table.queues.mappings("T0"):
            table.unregister("c1", "10.0.0.1:1", "b1")
    assert not any(table.queues.mappings(topic) for topic in topics)
    assert table.queues.size == 0
