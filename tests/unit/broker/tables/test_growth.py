"""What a change of a table costs, however large the table is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from rocketmq_tw.broker.tables.changes import MAX_LISTED
from rocketmq_tw.broker.tables.groups import table as groups
from rocketmq_tw.broker.tables.topics import table as topics
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import ConsumerData, HeartbeatData
from rocketmq_tw.wire.bodies.groups import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupTable,
)
from rocketmq_tw.wire.bodies.topics import CreateTopicListBody, TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, Threads
from tests.support.network import FakePeer
from tests.support.traced_memory import traced_memory
from tests.support.wait import go_on

MANY = 20_000
#: Of one heartbeat.
GROUPS = 1000


def allocated(work: Callable[[], object]) -> int:
    """Bytes that `work` took at once, at most."""
    with traced_memory() as traced:
        work()
        return traced.peak


def a_large_broker() -> BrokerInMemory:
    """It has many topics and groups and is just writing them."""
    broker = BrokerInMemory(threads=Threads(eager=False))
    broker.topics.update(*(TopicConfig(topic_name=f"T{n}") for n in range(MANY)))
    broker.groups.update(*(SubscriptionGroupConfig(group_name=f"G{n}") for n in range(MANY)))
    return broker


WHOLE = [
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
]


@pytest.mark.parametrize("code", WHOLE)
def test_one_copy_of_a_table_is_made_at_a_time(code: RequestCode) -> None:
    threads = Threads(eager=False)
    broker = BrokerInMemory(threads=threads)
    broker.clock.pump([0] * 5)
    threads.run()
    peers = [FakePeer() for _ in range(6)]

    def ask(peer: FakePeer) -> None:
        answer = broker.handlers[code](RemotingCommand.request(code), peer)
        answer.addCallback(peer.reply)

    for peer in peers:
        ask(peer)
    # The first, and one for all others.
    for answered in (1, 6):
        assert len(threads.waiting) == 1
        threads.run()
        broker.clock.pump([0] * 5)
        assert [len(peer.replies) for peer in peers] == [1] * answered + [0] * (6 - answered)
    bodies = {bytes(reply.body) for peer in peers for reply in peer.replies}
    assert len(bodies) == 1 and bodies != {b""}


def test_a_change_copies_no_table() -> None:
    broker = a_large_broker()
    for n in range(MANY):
        broker.groups.set_readable(f"G{n}", "T1", False)
    of_tables = broker.topics, broker.groups
    for change in (
        lambda: of_tables[0].create_on_send("New", "TBW102", "peer", 4, 0),
        lambda: of_tables[0].delete("T7"),
        lambda: of_tables[1].get("New"),
        lambda: of_tables[1].set_readable("G5", "T2", False),
        lambda: of_tables[1].set_readable("G6", "T1", True),
        lambda: of_tables[1].delete("G7"),
    ):
        assert allocated(change) < 100_000
    assert "G7" not in broker.groups.all() and "New" in broker.groups.all()
    assert not broker.groups.may_read("G5", "T2") and broker.groups.may_read("G6", "T1")


def test_a_write_has_what_was_there_when_it_began_and_the_next_one_the_rest() -> None:
    broker = a_large_broker()
    late = broker.groups.update(SubscriptionGroupConfig(group_name="Late"))
    kept: list[object] = []
    late.addCallback(kept.append)

    def in_the_file() -> dict[str, SubscriptionGroupConfig]:
        data = broker.files.read("/store/config/subscriptionGroup.json")
        return decode_body(SubscriptionGroupTable, data).subscription_group_table

    broker.threads.run()
    assert "G0" in in_the_file() and "Late" not in in_the_file() and not kept
    while broker.threads.run():
        pass
    assert in_the_file() == broker.groups.all() and kept == [None]


def test_a_heartbeat_of_many_groups_lets_others_in_between() -> None:
    broker, peer = BrokerInMemory(threads=Threads(eager=False)), FakePeer()
    wanted = [ConsumerData(group_name=f"G{n}") for n in range(GROUPS)]
    data = HeartbeatData(client_id="c", consumer_data_set=wanted)
    request = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data))
    answered: list[RemotingCommand] = []
    broker.handlers[RequestCode.HEART_BEAT](request, peer).addCallback(answered.append)
    in_first_turn = len(broker.groups.all())
    assert in_first_turn < GROUPS and not answered
    assert go_on(broker, answered, 20_000).code == ResponseCode.SUCCESS
    assert all(broker.clients.consumer_group(f"G{n}") for n in range(GROUPS))


def test_a_client_that_goes_during_its_heartbeat_leaves_nothing() -> None:
    broker, peer = BrokerInMemory(threads=Threads(eager=False)), FakePeer()
    wanted = [ConsumerData(group_name=f"G{n}") for n in range(GROUPS)]
    data = HeartbeatData(client_id="c", consumer_data_set=wanted)
    request = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data))
    broker.handlers[RequestCode.HEART_BEAT](request, peer)
    peer.lose()
    for _ in range(100):
        broker.clock.advance(0.001)
    producers, consumers = broker.clients.producer_kinds(), broker.clients.consumer_kinds()
    assert (producers.total(), sum(kinds.total() for _, kinds in consumers)) == (0, 0)


def test_what_a_mention_may_make_is_limited_and_the_refusal_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = BrokerInMemory()
    broker.add_topic("Topic")
    monkeypatch.setattr(groups, "MAX_AUTO_CREATED_GROUPS", len(broker.groups.all()))
    monkeypatch.setattr(topics, "MAX_AUTO_CREATED_TOPICS", len(broker.topics.all()))
    answer = broker.pull(0, consumer_group="New")
    assert answer is not None and answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "deleteSubGroup" in (answer.remark or "")
    for topic in ("New", "%RETRY%New"):
        answer = broker.send(topic=topic)
        assert answer is not None and answer.code == ResponseCode.SYSTEM_ERROR
        assert "deleteTopic" in (answer.remark or "")
        assert broker.topics.get(topic) is None


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G", "cleanOffset": "true"}),
    ],
)
def test_a_deletion_frees_offsets_bit_by_bit(code: RequestCode, fields: dict[str, str]) -> None:
    broker = BrokerInMemory()
    broker.add_topic("T")
    broker.groups.get("G")
    for number in range(MANY):
        broker.offsets.commit(f"G{number}", "T", 0, 5)
        broker.offsets.commit("G", f"T{number}", 0, 5)
    answered: list[RemotingCommand] = []
    request = RemotingCommand(code, ext_fields=fields)
    broker.handlers[code](request, FakePeer()).addCallback(answered.append)
    assert not answered, "others have their turn before all is freed"
    assert go_on(broker, answered, 20_000).code == ResponseCode.SUCCESS
    assert len(broker.offsets._offsets) == MANY


def test_retry_topics_of_a_deleted_topic_go_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerInMemory()
    broker.add_topic("T")
    groups_with_retries = 150
    for number in range(2 * groups_with_retries):
        broker.offsets.commit(f"G{number}", "T", 0, 5)
    for number in range(groups_with_retries):
        broker.add_topic(f"%RETRY%G{number}_T")
        broker.put(f"%RETRY%G{number}_T", b"again")
    removed: list[int] = []
    remove = broker.store.remove_topics

    def watched(topics: Iterable[str]) -> None:
        topics = list(topics)
        removed.append(len(topics))
        remove(topics)

    monkeypatch.setattr(broker.store, "remove_topics", watched)
    answered: list[RemotingCommand] = []
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    request = RemotingCommand(code, ext_fields={"topic": "T"})
    broker.handlers[code](request, FakePeer()).addCallback(answered.append)
    assert not answered
    assert go_on(broker, answered, 20_000).code == ResponseCode.SUCCESS
    assert sum(removed) == 1 + groups_with_retries and max(removed) <= 20
    assert not any(topic.startswith("%RETRY%") for topic in broker.store.queue_topics())
    assert not broker.offsets.groups_of("T")


LISTS: dict[RequestCode, Callable[[int], object]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: lambda number: CreateTopicListBody(
        topic_config_list=[TopicConfig(topic_name=f"New{n}") for n in range(number)]
    ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lambda number: SubscriptionGroupList(
        group_config_list=[SubscriptionGroupConfig(group_name=f"New{n}") for n in range(number)]
    ),
}


@pytest.mark.parametrize("code", LISTS)
def test_lists_have_a_limit_and_the_refusal_says_so(code: RequestCode) -> None:
    broker = BrokerInMemory()
    before = len(broker.topics.all()), len(broker.groups.all())
    body = encode_body(LISTS[code](MAX_LISTED + 1))
    for too_much in (body, body + b" " * 4_000_000):
        answer = broker.request(RemotingCommand.request(code, body=too_much))
        assert answer is not None and answer.code == ResponseCode.INVALID_PARAMETER
        assert "send at most" in (answer.remark or "")
    assert (len(broker.topics.all()), len(broker.groups.all())) == before
    answer = broker.request(RemotingCommand.request(code, body=encode_body(LISTS[code](100))))
    assert answer is not None and answer.code == ResponseCode.SUCCESS
