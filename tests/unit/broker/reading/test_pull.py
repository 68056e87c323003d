"""Pulling: every way a read can end, and the reads that wait."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.config.change import change
from rocketmq_tw.store.interface import GetStatus, QueueRead
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import ONEWAY_FLAG, RemotingCommand
from tests.support.broker import BrokerInMemory, messages_of, ok
from tests.support.network import FakePeer

COMMIT, SUBSCRIPTION = 1, 4


def filled(count: int = 3, **store: Any) -> BrokerInMemory:
    """A plane whose queue has messages with the tags a, b, a, b ..."""
    plane = BrokerInMemory(**store)
    plane.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    for n in range(count):
        ok(plane.send(b"%d" % n, properties={"TAGS": "ab"[n % 2]}))
    return plane


def slave_of(master: BrokerInMemory) -> BrokerInMemory:
    """A slave that serves reads and has all that `master` has."""
    master.store.fsync()
    slave = BrokerInMemory(
        clock=master.clock,
        network=master.network,
        address="127.0.0.2:10911",
        broker={"slave_read_enable": True, "namesrv_addr": ""},
        broker_role="SLAVE",
        ha_master_address=master.broker.addresses.ha,
    )
    slave.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    for _ in range(200):
        if slave.store.dispatched_offset == master.store.end_offset:
            return slave
        slave.clock.advance(0.1)
    raise AssertionError(f"the slave is at {slave.store.dispatched_offset}")


def bodies(response: RemotingCommand | None) -> list[bytes]:
    ok(response)
    assert response is not None
    return [message.body for message in messages_of(response.body)]


def code_of(response: RemotingCommand | None) -> int:
    assert response is not None and response.remark
    return response.code


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_messages_come_whole_with_the_queues_offsets(code: int) -> None:
    plane = filled()
    response = plane.pull(1, code=code)
    assert bodies(response) == [b"1", b"2"]
    assert ok(response) == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


def test_as_many_as_asked_for() -> None:
    plane = filled()
    assert bodies(plane.pull(max_msg_nums=2)) == [b"0", b"1"]
    assert bodies(plane.pull(max_msg_bytes=1)) == [b"0"], "at least one"


def test_tags_are_filtered_by_their_hash() -> None:
    plane = filled(4)
    assert bodies(plane.pull(subscription="b || c")) == [b"1", b"3"]
    response = plane.pull(subscription="c")
    assert code_of(response) == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert response is not None and response.ext_fields["nextBeginOffset"] == "4"


@pytest.mark.parametrize(
    ("offset", "given", "code", "next_offset"),
    [
        (3, {}, ResponseCode.PULL_NOT_FOUND, 3),
        (9, {}, ResponseCode.PULL_OFFSET_MOVED, 3),
        (-1, {}, ResponseCode.PULL_OFFSET_MOVED, 0),
        (0, {"queue_id": 1}, ResponseCode.PULL_NOT_FOUND, 0),
        (7, {"queue_id": 1}, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
def test_nothing_at_the_offset(
    offset: int, given: dict[str, int], code: ResponseCode, next_offset: int
) -> None:
    response = filled().pull(offset, **given)
    assert code_of(response) == code
    assert response is not None
    assert response.ext_fields["nextBeginOffset"] == str(next_offset)


class TestRefusals:
    def test_a_group_that_is_not_there(self) -> None:
        plane = filled(broker={"auto_create_subscription_group": False})
        assert code_of(plane.pull()) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    @pytest.mark.parametrize(
        ("code", "given"),
        [
            (ResponseCode.TOPIC_NOT_EXIST, {"topic": "Nowhere"}),
            (ResponseCode.INVALID_PARAMETER, {"queue_id": 4}),
            (ResponseCode.INVALID_PARAMETER, {"queue_id": -1}),
            (ResponseCode.SUBSCRIPTION_PARSE_FAILED, {"subscription": "||"}),
            (
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                {"subscription": "", "expression_type": "SQL92"},
            ),
            (ResponseCode.SYSTEM_ERROR, {"subscription": "a > 1", "expression_type": "SQL92"}),
            (ResponseCode.SUBSCRIPTION_NOT_EXIST, {"sys_flag": 0}),
        ],
        ids=str,
    )
    def test_refused(self, code: ResponseCode, given: dict[str, Any]) -> None:
        assert code_of(filled().pull(**given)) == code

    @pytest.mark.parametrize(
        ("kind", "setup"),
        [
            ("1", {"broker": {"broker_permission": 2}}),
            ("2", {"group": {"consume_enable": False}}),
            ("3", {"topic": {"perm": 2}}),
            ("4", {"group": {"consume_broadcast_enable": False}}),
            ("5", {"forbidden": "Topic"}),
        ],
    )
    def test_what_forbids_is_told(self, kind: str, setup: dict[str, Any]) -> None:
        plane = BrokerInMemory(broker=setup.get("broker"))
        plane.add_topic("Topic", **setup.get("topic", {}))
        plane.groups.update(SubscriptionGroupConfig(group_name="G", **setup.get("group", {})))
        plane.groups.set_readable("G", setup.get("forbidden", "Other"), False)
        plane.subscribe("G", plane.peer, topic="Topic", message_model="BROADCASTING")
        response = plane.pull(sys_flag=0)
        assert code_of(response) == ResponseCode.NO_PERMISSION
        assert response is not None and response.ext_fields["forbiddenType"] == kind

    def test_lite_pull_may_be_off(self) -> None:
        plane = filled(broker={"lite_pull_message_enable": False})
        response = plane.pull(code=RequestCode.LITE_PULL_MESSAGE)
        assert code_of(response) == ResponseCode.NO_PERMISSION
        ok(plane.pull())

    def test_pull_consumers_may_be_unwelcome(self) -> None:
        plane = filled(broker={"reject_pull_consumer_enable": True})
        assert code_of(plane.pull()) == ResponseCode.SUBSCRIPTION_NOT_EXIST
        plane.subscribe("G", plane.peer, topic="Topic", sub_string="*")
        ok(plane.pull())


class TestSubscriptions:
    def test_the_groups_subscription_filters(self) -> None:
        plane = filled()
        plane.subscribe("G", plane.peer, topic="Topic", sub_string="b", code_set=[98])
        assert bodies(plane.pull(sys_flag=0)) == [b"1"]

    def test_another_topics(self) -> None:
        plane = filled()
        plane.subscribe("G", plane.peer, topic="Other", sub_string="*")
        assert code_of(plane.pull(sys_flag=0)) == ResponseCode.SUBSCRIPTION_NOT_EXIST

    def test_an_older_one(self) -> None:
        plane = filled()
        plane.subscribe("G", plane.peer, topic="Topic", sub_string="*", sub_version=4)
        assert (
            code_of(plane.pull(sys_flag=0, sub_version=5)) == ResponseCode.SUBSCRIPTION_NOT_LATEST
        )
        ok(plane.pull(sys_flag=0, sub_version=4))


class TestOffsets:
    def test_a_pull_commits_where_it_says_so(self) -> None:
        plane = filled()
        plane.pull(commit_offset=2)
        assert plane.offsets.query("G", "Topic", 0) == -1
        plane.pull(commit_offset=2, sys_flag=SUBSCRIPTION | COMMIT)
        assert plane.offsets.query("G", "Topic", 0) == 2

    def test_a_reset_is_taken_up_once(self) -> None:
        plane = filled()
        plane.offsets.reset("G", "Topic", 0, 1)
        response = plane.pull(3, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=3)
        assert code_of(response) == ResponseCode.PULL_OFFSET_MOVED
        assert response is not None and response.ext_fields["nextBeginOffset"] == "1"
        assert plane.offsets.query("G", "Topic", 0) == 1
        assert bodies(plane.pull(1)) == [b"1", b"2"]


class TestHolding:
    def test_a_message_ends_it_in_the_turn_it_is_stored(self) -> None:
        plane = filled()
        consumer = FakePeer()
        assert plane.request(plane.pull_request(3, suspend_ms=15_000), consumer) is None
        for body in (b"3", b"4"):
            plane.handlers[310](plane.send_request(body), plane.peer)
        plane.clock.advance(0)
        (response,) = consumer.replies
        assert bodies(response) == [b"3", b"4"], "all that the turn brought"

    def test_its_body_is_not_kept(self) -> None:
        plane = filled()
        request = plane.pull_request(3, suspend_ms=15_000)
        request.body = bytes(1000)
        assert plane.request(request) is None
        assert request.body == b""

    def test_a_oneway_one_ends_too(self) -> None:
        plane = filled()
        request = plane.pull_request(3, suspend_ms=15_000)
        request.flag = ONEWAY_FLAG
        assert plane.request(request) is None and not plane.peer.ended
        plane.send(b"3")
        assert len(plane.peer.ended) == 1

    def test_a_message_with_another_tag_does_not(self) -> None:
        plane = filled()
        assert plane.pull(3, suspend_ms=15_000, subscription="b") is None
        plane.send(properties={"TAGS": "a"})
        assert len(plane.held_pulls) == 1
        plane.clock.advance(5)
        response = plane.peer.replies[-1]
        assert code_of(response) == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert response.ext_fields["nextBeginOffset"] == "4"

    def test_its_time_ends_with_nothing(self) -> None:
        plane = filled()
        assert plane.pull(3, suspend_ms=8_000) is None
        plane.clock.pump([5, 5])
        assert code_of(plane.peer.replies[-1]) == ResponseCode.PULL_NOT_FOUND
        assert len(plane.held_pulls) == 0

    def test_polling_follows_changes_of_the_configuration(self) -> None:
        broker = filled()

        def change_to(text: bytes) -> None:
            assert broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text).code == 0

        def seconds_held() -> float:
            began, before = broker.clock.seconds(), len(broker.peer.replies)
            assert broker.pull(3, suspend_ms=15_000) is None
            for _ in range(1000):
                broker.clock.advance(0.05)
                if len(broker.peer.replies) > before:
                    assert code_of(broker.peer.replies[-1]) == ResponseCode.PULL_NOT_FOUND
                    return round(broker.clock.seconds() - began, 3)
            raise AssertionError("it is held for ever")

        assert 15 <= seconds_held() <= 20.1
        change_to(b"longPollingEnable=false")
        assert 1 <= seconds_held() <= 5.1, "the look that was due by then"
        for _ in range(3):
            assert 1 <= seconds_held() <= 2.1
        change_to(b"shortPollingTimeMills=200")
        seconds_held()
        for _ in range(3):
            assert 0.2 <= seconds_held() <= 0.5
        change_to(b"longPollingEnable=true")
        for _ in range(2):
            assert 15 <= seconds_held() <= 20.1

    def test_without_the_flag_nothing_is_held(self) -> None:
        assert code_of(filled().pull(3)) == ResponseCode.PULL_NOT_FOUND

    def test_an_offset_that_must_move_is_not_held(self) -> None:
        assert code_of(filled().pull(9, suspend_ms=9_000)) == ResponseCode.PULL_OFFSET_MOVED

    def test_a_topic_deleted_meanwhile_is_told(self) -> None:
        plane = filled()
        assert plane.pull(3, suspend_ms=15_000) is None
        plane.topics.delete("Topic")
        plane.held_pulls.resume_all()
        assert code_of(plane.peer.replies[-1]) == ResponseCode.TOPIC_NOT_EXIST

    def test_the_commit_is_made_when_the_pull_comes(self) -> None:
        plane = filled()
        plane.pull(3, suspend_ms=15_000, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=2)
        assert plane.offsets.query("G", "Topic", 0) == 2
        plane.offsets.commit("G", "Topic", 0, 3)
        plane.send()
        assert plane.offsets.query("G", "Topic", 0) == 3


class TestSuggestions:
    def test_the_master_unless_slaves_are_read_from(self) -> None:
        plane = filled()
        plane.groups.update(SubscriptionGroupConfig(group_name="G", broker_id=1))
        assert ok(plane.pull())["suggestWhichBrokerId"] == "0"
        change(plane.config, {"slaveReadEnable": "true"})
        assert ok(plane.pull())["suggestWhichBrokerId"] == "1"
        msgspec.structs.force_setattr(plane.config, "is_in_broker_container", True)
        assert ok(plane.pull())["suggestWhichBrokerId"] == "0", "as in stock's containers"

    def test_a_slave_that_has_nothing_sends_to_the_master(self) -> None:
        response = slave_of(filled()).pull(3, suspend_ms=9_000)
        assert code_of(response) == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert response is not None and response.ext_fields["suggestWhichBrokerId"] == "0"


class TestRetention:
    def test_an_offset_that_retention_took_moves_to_the_oldest_message(self) -> None:
        plane = filled(40, mapped_file_size_commit_log=4096)
        plane.store.checkpoint()
        plane.clock.advance(73 * 3600)
        assert sum(plane.store.clean(plane.now_ms(), at_any_hour=True))
        response = plane.pull(0)
        assert code_of(response) == ResponseCode.PULL_OFFSET_MOVED
        assert response is not None and response.remark == "OFFSET_TOO_SMALL"
        oldest = int(response.ext_fields["minOffset"])
        assert 0 < oldest == int(response.ext_fields["nextBeginOffset"])
        assert bodies(plane.pull(oldest))[0] == b"%d" % oldest

    def test_a_message_whose_file_is_just_gone_is_passed_over_at_once(self) -> None:
        plane = filled(40, mapped_file_size_commit_log=4096)
        plane.store._log.remove_first()
        response = plane.pull(0, max_msg_nums=1)
        assert code_of(response) == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert response is not None and response.remark == "MESSAGE_WAS_REMOVING"
        offset = int(response.ext_fields["nextBeginOffset"])
        assert offset > 0
        # The first one that is left, in the second file.
        assert offset <= int(bodies(plane.pull(offset))[0]) < 40


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (GetStatus.MESSAGE_WAS_REMOVING, 5, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetStatus.NO_MATCHED_MESSAGE, 5, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetStatus.OFFSET_FOUND_NULL, 5, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.OFFSET_OVERFLOW_ONE, 5, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 5, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.OFFSET_TOO_SMALL, 5, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 5, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 0, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 5, ResponseCode.PULL_OFFSET_MOVED),
    ],
)
def test_every_outcome_of_a_read_has_stocks_code(
    monkeypatch, status: GetStatus, offset: int, code: ResponseCode
) -> None:
    plane = filled()
    read = QueueRead(status, b"", 0, 11, 10, 20)
    monkeypatch.setattr(plane.store, "read_queue", lambda *args, **kwargs: read)
    response = plane.pull(offset)
    assert response is not None
    assert (response.code, response.remark) == (code, status.name)
    fields = ("nextBeginOffset", "minOffset", "maxOffset")
    assert [response.ext_fields[name] for name in fields] == ["11", "10", "20"]
