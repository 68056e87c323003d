"""Static topics on two brokers: made, written, read, moved, cleaned, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.static_topics.part import StaticTopics
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.offsets import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer
from tests.support.static_topics import TOPIC, StaticCluster, item

START = 10_000


@pytest.fixture
def cluster() -> StaticCluster:
    made = StaticCluster()
    made.make()
    return made


@pytest.fixture
def moved(cluster: StaticCluster) -> StaticCluster:
    """Three messages were sent before the move, two after it."""
    for number in range(3):
        ok(cluster.send(cluster.a, b"%d" % number))
    cluster.move()
    for number in range(3, 5):
        ok(cluster.send(cluster.b, b"%d" % number))
    return cluster


def pull(
    cluster: StaticCluster, broker: BrokerInMemory, offset: int, **fields: Any
) -> RemotingCommand:
    request = broker.pull_request(offset, topic=TOPIC, queue_id=0, **fields)
    answer = cluster.ask(broker, request)
    assert answer is not None
    return answer


def offsets_in(answer: RemotingCommand) -> tuple[int, int, int, int]:
    fields = answer.ext_fields
    names = ("nextBeginOffset", "minOffset", "maxOffset", "offsetDelta")
    next_offset, first, end, delta = (int(fields[name]) for name in names)
    return next_offset, first, end, delta


def value(cluster: StaticCluster, code: RequestCode, header: Header, name: str = "offset") -> int:
    return int(ok(cluster.call(cluster.b, code, header))[name])


class TestMaking:
    def test_name_servers_know_who_leads_what(self, cluster: StaticCluster) -> None:
        assert cluster.led() == {"a": {0: 0}, "b": {1: 0}}

    def test_it_is_asked_for_with_lo_only(self, cluster: StaticCluster) -> None:
        detail = cluster.detail(cluster.a)
        assert detail is not None and detail.hosted_queues == {0: [item(0, "a")]}

    def test_it_is_kept(self, cluster: StaticCluster) -> None:
        cluster.a.stop()
        again = BrokerInMemory(cluster.a.files, broker={"broker_name": "a"})
        detail = again.broker[Tables].mappings.get(TOPIC)
        assert detail is not None and detail.hosted_queues == {0: [item(0, "a")]}

    def test_deleting_the_topic_forgets_it(self, cluster: StaticCluster) -> None:
        header = DeleteTopicRequestHeader(topic=TOPIC)
        ok(cluster.call(cluster.a, RequestCode.DELETE_TOPIC_IN_BROKER, header))
        assert TOPIC not in cluster.a.broker[Tables].mappings

    def test_queues_that_are_not_named_stay(self, cluster: StaticCluster) -> None:
        ok(cluster.host("a", {5: [item(0, "a", 1)]}, epoch=2_000, total=6))
        assert cluster.led()["a"] == {0: 0, 5: 1}

    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            ({"bname": "b"}, "meant for b"),
            ({"epoch": 500}, "older than 1000"),
            ({"scope": "other"}, "scope"),
            ({"queues": {0: [item(0, "a"), item(0, "b", 0, 5)]}}, "gen does not grow"),
            ({"queues": {0: [item(0, "a"), item(1, "b", 0, 0)]}}, "logicOffset does not grow"),
            ({"queues": {0: [item(0, "a", -1)]}}, "negative"),
            ({"queues": {0: [item(0, "a", 1)]}}, "another queue"),
            ({"queues": {0: [item(0, "a"), item(1, "b", 1, 9)]}}, "change its leader"),
            ({"queues": {1: [item(0, "a", 1)]}}, "left out"),
        ],
    )
    def test_what_cannot_follow_is_refused(
        self, cluster: StaticCluster, wrong: dict[str, Any], why: str
    ) -> None:
        queues = wrong.pop("queues", {0: [item(0, "a")]})
        answer = cluster.host("a", queues, **wrong)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert why in (answer.remark or "")
        detail = cluster.detail(cluster.a)
        assert detail is not None and detail.hosted_queues == {0: [item(0, "a")]}

    def test_force_takes_anything_that_can_be(self, cluster: StaticCluster) -> None:
        ok(cluster.host("a", {0: [item(0, "a", 1)]}, epoch=1, force=True))
        assert cluster.led()["a"] == {0: 1}

    def test_a_slave_has_its_masters(self, cluster: StaticCluster) -> None:
        slave = BrokerInMemory(
            clock=cluster.clock,
            network=cluster.network,
            address="10.0.0.3:10911",
            broker={"broker_name": "a", "broker_id": 1, "namesrv_addr": "10.0.0.9:9876"},
            broker_role="SLAVE",
        )
        for _ in range(300):
            cluster.clock.advance(0.1)
        detail = slave.broker[Tables].mappings.get(TOPIC)
        assert detail is not None and detail.hosted_queues == {0: [item(0, "a")]}


class TestSending:
    def test_the_answer_names_the_logic_queue(self, cluster: StaticCluster) -> None:
        ok(cluster.send(cluster.b, b"x", 1))
        fields = ok(cluster.send(cluster.b, b"y", 1))
        assert (fields["queueId"], fields["queueOffset"]) == ("1", "1")
        assert [message.body for message in cluster.b.consume(TOPIC)] == [b"x", b"y"]

    def test_a_queue_of_the_brokers_choice(self, cluster: StaticCluster) -> None:
        assert ok(cluster.send(cluster.b, b"x", -1))["queueId"] == "1"

    def test_who_does_not_lead_it_says_so(self, cluster: StaticCluster) -> None:
        for queue_id in (1, 7):
            answer = cluster.send(cluster.a, b"x", queue_id)
            assert answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE
            assert "does not lead" in (answer.remark or "")

    def test_behind_a_move(self, moved: StaticCluster) -> None:
        assert moved.send(moved.a, b"x").code == ResponseCode.NOT_LEADER_FOR_QUEUE
        fields = ok(moved.send(moved.b, b"x"))
        assert (fields["queueId"], fields["queueOffset"]) == ("0", str(START + 2))

    def test_while_its_beginning_is_not_decided(self, cluster: StaticCluster) -> None:
        undecided = [item(0, "a"), item(1, "b", 1, -1)]
        ok(cluster.host("b", {0: undecided, 1: [item(0, "b")]}, epoch=2_000))
        assert ok(cluster.send(cluster.b, b"x"))["queueOffset"] == "-1"


class TestPulling:
    def test_where_it_was_never_moved(self, cluster: StaticCluster) -> None:
        ok(cluster.send(cluster.a, b"x"))
        answer = pull(cluster, cluster.a, 0)
        assert answer.code == ResponseCode.SUCCESS
        assert offsets_in(answer) == (1, 0, 1, 0)

    def test_messages_of_before_a_move_come_from_the_former_leader(
        self, moved: StaticCluster
    ) -> None:
        answer = pull(moved, moved.b, 1)
        assert answer.code == ResponseCode.SUCCESS
        assert [record.body for record in decode_records(answer.body)] == [b"1", b"2"]
        assert offsets_in(answer) == (3, 0, START, 0)

    def test_at_the_end_of_an_item_the_next_one_follows(self, moved: StaticCluster) -> None:
        answer = pull(moved, moved.b, 3)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert offsets_in(answer) == (START, START, START, START)
        answer = pull(moved, moved.b, START)
        assert [record.body for record in decode_records(answer.body)] == [b"3", b"4"]
        assert offsets_in(answer) == (START + 2, START, START + 2, START)

    def test_at_the_end_of_all_it_waits(self, moved: StaticCluster) -> None:
        request = moved.b.pull_request(START + 2, topic=TOPIC, queue_id=0, suspend_ms=10_000)
        peer = FakePeer()
        assert moved.ask(moved.b, request, peer) is None
        ok(moved.send(moved.b, b"late"))
        moved.settle()
        (answer,) = peer.replies
        assert [record.body for record in decode_records(answer.body)] == [b"late"]
        assert offsets_in(answer) == (START + 3, START, START + 3, START)

    def test_beyond_the_end(self, moved: StaticCluster) -> None:
        answer = pull(moved, moved.b, START + 50)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert offsets_in(answer)[0] == START + 2

    def test_who_does_not_lead_it_says_so(self, moved: StaticCluster) -> None:
        assert pull(moved, moved.a, 0).code == ResponseCode.NOT_LEADER_FOR_QUEUE

    def test_the_physical_queue_with_lo_false(self, moved: StaticCluster) -> None:
        answer = pull(moved, moved.a, 0, lo=False)
        assert len(decode_records(answer.body)) == 3
        assert "offsetDelta" not in answer.ext_fields

    def test_a_former_leader_that_is_gone_is_named(self, moved: StaticCluster) -> None:
        moved.network.stop(moved.a.address)
        answer = pull(moved, moved.b, 0)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "the broker a of Static" in (answer.remark or "")

    def test_a_pull_commits_in_its_own_queue_only(self, moved: StaticCluster) -> None:
        commit = {"sys_flag": 1 | 4, "commit_offset": 2}
        pull(moved, moved.b, START, **commit)
        assert moved.b.offsets.query("G", TOPIC, 1) == -1
        pull(moved, moved.b, START, **commit | {"commit_offset": START + 1})
        assert moved.b.offsets.query("G", TOPIC, 1) == 1


class TestOffsets:
    def commit(self, cluster: StaticCluster, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="G", topic=TOPIC, queue_id=0, commit_offset=offset
        )
        ok(cluster.call(cluster.b, RequestCode.UPDATE_CONSUMER_OFFSET, header))

    def query(self, cluster: StaticCluster) -> RemotingCommand:
        header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic=TOPIC, queue_id=0)
        return cluster.call(cluster.b, RequestCode.QUERY_CONSUMER_OFFSET, header)

    def test_they_are_kept_where_the_messages_are(self, moved: StaticCluster) -> None:
        pull(moved, moved.b, 0)
        assert self.query(moved).code == ResponseCode.QUERY_NOT_FOUND
        self.commit(moved, 2)
        assert moved.a.offsets.query("G", TOPIC, 0) == 2
        assert ok(self.query(moved))["offset"] == "2"
        self.commit(moved, START + 1)
        assert moved.b.offsets.query("G", TOPIC, 1) == 1
        assert ok(self.query(moved))["offset"] == str(START + 1)

    def test_of_a_queue_that_was_never_moved(self, cluster: StaticCluster) -> None:
        ok(cluster.send(cluster.b, b"x", 1))
        cluster.b.pull(0, topic=TOPIC, queue_id=0, lo=False)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="G", topic=TOPIC, queue_id=1, commit_offset=1
        )
        ok(cluster.call(cluster.b, RequestCode.UPDATE_CONSUMER_OFFSET, header))
        asked = QueryConsumerOffsetRequestHeader(consumer_group="G", topic=TOPIC, queue_id=1)
        assert value(cluster, RequestCode.QUERY_CONSUMER_OFFSET, asked) == 1

    def test_who_does_not_lead_the_queue_says_so(self, moved: StaticCluster) -> None:
        header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic=TOPIC, queue_id=0)
        answer = moved.call(moved.a, RequestCode.QUERY_CONSUMER_OFFSET, header)
        assert answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE


class TestResets:
    """222 asks each broker about its physical queues, those that had the logic queue first."""

    def reset(self, cluster: StaticCluster, timestamp: int) -> None:
        for broker in (cluster.a, cluster.b):
            ok(
                cluster.call(
                    broker,
                    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                    ResetOffsetRequestHeader(
                        topic=TOPIC, group="G", timestamp=timestamp, is_force=True
                    ),
                )
            )

    @pytest.fixture
    def consumed(self, moved: StaticCluster) -> StaticCluster:
        for broker in (moved.a, moved.b):
            broker.pull(0, topic=TOPIC, queue_id=0, lo=False)
        moved.a.offsets.commit("G", TOPIC, 0, 3)
        moved.b.offsets.commit("G", TOPIC, 1, 2)
        return moved

    def next_pull(self, cluster: StaticCluster, offset: int) -> tuple[int, int]:
        answer = pull(cluster, cluster.b, offset, consumer_group="G")
        return answer.code, offsets_in(answer)[0]

    def test_a_group_begins_where_it_was_reset_to_in_an_earlier_item(
        self, consumed: StaticCluster
    ) -> None:
        self.reset(consumed, 0)
        header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic=TOPIC, queue_id=0)
        assert value(consumed, RequestCode.QUERY_CONSUMER_OFFSET, header) == 0

    def test_so_it_does_behind_a_restart(self, consumed: StaticCluster) -> None:
        self.reset(consumed, 0)
        for broker in (consumed.a, consumed.b):
            broker.offsets.end_role()
        header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic=TOPIC, queue_id=0)
        assert value(consumed, RequestCode.QUERY_CONSUMER_OFFSET, header) == 0

    def test_pulls_of_a_connected_consumer_lead_there(self, consumed: StaticCluster) -> None:
        self.reset(consumed, 0)
        code, begin = self.next_pull(consumed, START + 2)
        assert (code, begin) == (ResponseCode.PULL_OFFSET_MOVED, START - 1)
        assert self.next_pull(consumed, begin) == (ResponseCode.PULL_OFFSET_MOVED, 0)
        assert self.next_pull(consumed, 0)[0] == ResponseCode.SUCCESS

    def test_a_reset_to_the_end_passes_over_all(self, consumed: StaticCluster) -> None:
        self.reset(consumed, -1)
        assert self.next_pull(consumed, START) == (ResponseCode.PULL_OFFSET_MOVED, START + 2)

    def test_a_reset_to_the_begin_of_an_item_goes_on_there(self, consumed: StaticCluster) -> None:
        first, *_ = consumed.b.consume(TOPIC, 1)
        self.reset(consumed, first.store_timestamp)
        _, begin = self.next_pull(consumed, START + 2)
        assert self.next_pull(consumed, begin) == (ResponseCode.PULL_OFFSET_MOVED, 3)
        assert self.next_pull(consumed, 3) == (ResponseCode.PULL_RETRY_IMMEDIATELY, START)
        assert self.next_pull(consumed, START)[0] == ResponseCode.SUCCESS


class TestViews:
    def test_the_ends(self, moved: StaticCluster) -> None:
        highest = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0)
        lowest = GetMinOffsetRequestHeader(topic=TOPIC, queue_id=0)
        assert value(moved, RequestCode.GET_MAX_OFFSET, highest) == START + 2
        assert value(moved, RequestCode.GET_MIN_OFFSET, lowest) == 0

    def test_times(self, moved: StaticCluster) -> None:
        first, *_ = moved.a.consume(TOPIC, 0)
        header = GetEarliestMsgStoretimeRequestHeader(topic=TOPIC, queue_id=0)
        code = RequestCode.GET_EARLIEST_MSG_STORETIME
        assert value(moved, code, header, "timestamp") == first.store_timestamp

    def test_searching_by_time(self, moved: StaticCluster) -> None:
        times = [
            message.store_timestamp
            for message in moved.a.consume(TOPIC, 0) + moved.b.consume(TOPIC, 1)
        ]
        expected = [0, 1, 2, START, START + 1]
        for timestamp, offset in zip(times, expected, strict=True):
            header = SearchOffsetRequestHeader(topic=TOPIC, queue_id=0, timestamp=timestamp)
            assert value(moved, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header) == offset
        late = SearchOffsetRequestHeader(topic=TOPIC, queue_id=0, timestamp=times[-1] + 1)
        assert value(moved, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, late) >= START + 1


class TestCleaning:
    def clean(self, cluster: StaticCluster, broker: BrokerInMemory) -> None:
        done = Deferred.fromCoroutine(broker.broker[StaticTopics].cleaner.clean())
        for _ in range(10):
            cluster.settle()
        assert done.called

    def test_an_item_with_messages_stays(self, moved: StaticCluster) -> None:
        self.clean(moved, moved.b)
        detail = moved.detail(moved.b)
        assert detail is not None and len(detail.hosted_queues[0]) == 2

    def test_an_item_without_messages_goes(self, cluster: StaticCluster) -> None:
        cluster.move()
        self.clean(cluster, cluster.b)
        detail = cluster.detail(cluster.b)
        assert detail is not None and detail.hosted_queues[0] == [item(1, "b", 1, START)]
        # It is kept, and stands in nobody's way: a read from the old start is sent on.
        answer = pull(cluster, cluster.b, 0)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert offsets_in(answer)[0] == START

    def test_an_unreachable_broker_loses_nothing(self, cluster: StaticCluster) -> None:
        cluster.move()
        cluster.network.stop(cluster.a.address)
        self.clean(cluster, cluster.b)
        detail = cluster.detail(cluster.b)
        assert detail is not None and len(detail.hosted_queues[0]) == 2

    def test_a_queue_that_moved_twice_is_forgotten_by_its_first_leader(
        self, cluster: StaticCluster
    ) -> None:
        third = BrokerInMemory(
            clock=cluster.clock,
            network=cluster.network,
            address="10.0.0.4:10911",
            broker={"broker_name": "c", "namesrv_addr": "10.0.0.9:9876"},
        )
        cluster.brokers["c"] = third
        cluster.settle()
        cluster.move()
        self.clean(cluster, cluster.a)
        detail = cluster.detail(cluster.a)
        assert detail is not None and 0 in detail.hosted_queues, "it sends readers on"
        twice = [item(0, "a"), item(1, "b", 1, START), item(2, "c", 0, 2 * START)]
        ok(cluster.host("c", {0: twice}, epoch=3_000))
        ok(cluster.host("b", {0: twice, 1: [item(0, "b")]}, epoch=3_000))
        ok(cluster.host("a", {}, epoch=3_000))
        for _ in range(20):
            cluster.settle()
        self.clean(cluster, cluster.a)
        detail = cluster.detail(cluster.a)
        assert detail is not None and 0 not in detail.hosted_queues

    def test_it_runs_at_the_hour_of_retention(self, cluster: StaticCluster) -> None:
        cluster.move()
        for _ in range(26 * 12):
            cluster.clock.advance(300)
            cluster.settle()
        detail = cluster.detail(cluster.b)
        assert detail is not None and len(detail.hosted_queues[0]) == 1
