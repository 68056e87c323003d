"""What 208 says is being consumed: between a group's consumer offset and its last pull."""

import pytest

from rocketmq_tw.broker.tables.offsets import pairs
from rocketmq_tw.broker.tables.offsets.pairs import PullOffsets
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import ConsumeStats
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.clients import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
)
from rocketmq_tw.wire.headers.offsets import ResetOffsetRequestHeader
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.broker import BrokerInMemory, ok


@pytest.fixture
def broker() -> BrokerInMemory:
    """Five messages, which the group G has pulled, and two of which it has consumed."""
    broker = BrokerInMemory()
    for _ in range(5):
        ok(broker.send())
    ok(broker.pull(0))
    broker.offsets.commit("G", "Topic", 0, 2)
    return broker


def progress(broker: BrokerInMemory) -> tuple[int, int]:
    """Consumer offset and pull offset of queue 0."""
    header = GetConsumeStatsRequestHeader(consumer_group="G", topic="Topic")
    stats = decode_body(ConsumeStats, broker.ask(RequestCode.GET_CONSUME_STATS, header).body)
    (queue,) = [each for queue, each in stats.offset_table.items() if queue.queue_id == 0]
    return queue.consumer_offset, queue.pull_offset


def test_the_next_pull_is_remembered(broker: BrokerInMemory) -> None:
    assert progress(broker) == (2, 5)


def test_what_is_committed_behind_it_counts(broker: BrokerInMemory) -> None:
    broker.offsets.commit("G", "Topic", 0, 9)
    assert progress(broker) == (9, 9)


def test_a_reset_takes_it_back(broker: BrokerInMemory) -> None:
    header = ResetOffsetRequestHeader(
        topic="Topic", group="G", timestamp=0, is_force=True, offset=1, queue_id=0
    )
    broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert progress(broker) == (1, 1)


def test_it_goes_with_the_group_and_with_the_topic(broker: BrokerInMemory) -> None:
    header = DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=True)
    broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    assert broker.offsets.pulled.query("G", "Topic", 0) == -1
    ok(broker.pull(0))
    assert broker.offsets.pulled.query("G", "Topic", 0) == 5
    broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="Topic"))
    assert broker.offsets.pulled.query("G", "Topic", 0) == -1


def test_a_log_that_was_cut_takes_it_back(broker: BrokerInMemory) -> None:
    for _ in broker.offsets.clamp(lambda topic, queue_id: 3):
        pass
    assert progress(broker) == (2, 3)


def test_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "MAX_PULLED_PAIRS", 2)
    table = PullOffsets()
    for group in ("A", "B", "C"):
        table.note(group, "T", 0, 7)
    assert [table.query(group, "T", 0) for group in ("A", "B", "C")] == [7, 7, -1]
    table.clear("A", "T")
    table.note("C", "T", 0, 8)
    assert table.query("C", "T", 0) == 8
