"""What clients need of the broker that acts for the master, beside the messages that wait."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.message.names import retry_topic
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.offsets import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from tests.support.broker import BrokerInMemory, messages_of, ok
from tests.support.network import FakePeer
from tests.support.sim.acting import ActingCluster

#: How a slave answers pulls that it does not serve, before and after it has found its master.
AS_A_SLAVE = {ResponseCode.SYSTEM_BUSY, ResponseCode.PULL_RETRY_IMMEDIATELY}
QUEUES = [MessageQueue(topic="Topic", broker_name="a", queue_id=number) for number in range(3)]


def acting_cluster(slaves: int = 1, **settings: Any) -> tuple[ActingCluster, BrokerInMemory]:
    """A group whose master is gone, with ten messages in `Topic`, and the slave that acts."""
    cluster = ActingCluster(settings=settings, total_replicas=slaves + 1)
    master = cluster.start_group("a", slaves)
    for number in range(10):
        ok(master.send(b"%d" % number))
    cluster.run_until(lambda: all(cluster.follows("a", 1 + each) for each in range(slaves)))
    cluster.run(6)
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    return cluster, cluster.broker("a", 1)


def lock(cluster: ActingCluster, broker: BrokerInMemory, client: str, **fields: Any) -> list[int]:
    """The ids of the queues that a client gets."""
    body = LockBatchRequestBody(consumer_group="G", client_id=client, mq_set=QUEUES, **fields)
    answer = ask(cluster, broker, RequestCode.LOCK_BATCH_MQ, body=encode_body(body))
    locked = decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set
    return [queue.queue_id for queue in locked]


def ask(
    cluster: ActingCluster, broker: BrokerInMemory, code: RequestCode, *args: Any, **fields: Any
) -> RemotingCommand:
    request = RemotingCommand.request(code, *args, **fields)
    result = broker.handlers[code](request, FakePeer())
    return result if isinstance(result, RemotingCommand) else cluster.result(result)


def test_its_messages_are_read_without_further_keys() -> None:
    """Also by a group that has no offsets: a new member of an orderly group may have locks only."""
    _, broker = acting_cluster()
    answer = broker.pull()
    assert answer is not None and answer.code == ResponseCode.SUCCESS
    assert [m.body for m in messages_of(answer.body)] == [b"%d" % number for number in range(10)]
    assert answer.ext_fields["suggestWhichBrokerId"] == "0", "it is the master to clients"


@pytest.mark.parametrize("slave_read_enable", [False, True])
def test_nobody_is_sent_to_the_master_that_is_gone(slave_read_enable: bool) -> None:
    """A slave sends consumers there for what it lacks; here they wait for messages."""
    _, broker = acting_cluster(slave_read_enable=slave_read_enable)
    answer = broker.pull(10)
    assert answer is not None and answer.code == ResponseCode.PULL_NOT_FOUND
    moved = broker.pull(99)
    assert moved is not None and moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert {answer.ext_fields["suggestWhichBrokerId"] for answer in (answer, moved)} == {"0"}


def test_a_pull_that_waits_is_answered_once_it_acts_no_more() -> None:
    cluster, broker = acting_cluster()
    peer = FakePeer()
    assert broker.request(broker.pull_request(10, suspend_ms=30_000), peer) is None
    cluster.run(1)
    assert not peer.replies
    cluster.start("a", 0)
    cluster.run_until(lambda: not cluster.acts("a", 1))
    cluster.run(1)
    assert [reply.code in AS_A_SLAVE for reply in peer.replies] == [True]


def test_offsets_and_times_of_queues_are_told() -> None:
    cluster, broker = acting_cluster()
    place: dict[str, Any] = {"topic": "Topic", "queue_id": 0}
    first = broker.consume()[0].store_timestamp

    def offset(code: RequestCode, header: Any) -> str:
        return ok(ask(cluster, broker, code, header))["offset"]

    assert offset(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(**place)) == "10"
    assert offset(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(**place)) == "0"
    search = SearchOffsetRequestHeader(**place, timestamp=first)
    assert offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search) == "0"
    earliest = GetEarliestMsgStoretimeRequestHeader(**place)
    fields = ok(ask(cluster, broker, RequestCode.GET_EARLIEST_MSG_STORETIME, earliest))
    assert fields["timestamp"] == str(first)


def test_groups_go_on_with_their_offsets() -> None:
    cluster, broker = acting_cluster()
    place: dict[str, Any] = {"consumer_group": "G", "topic": "Topic", "queue_id": 0}
    update = UpdateConsumerOffsetRequestHeader(**place, commit_offset=7)
    ok(ask(cluster, broker, RequestCode.UPDATE_CONSUMER_OFFSET, update))
    query = QueryConsumerOffsetRequestHeader(**place)
    assert ok(ask(cluster, broker, RequestCode.QUERY_CONSUMER_OFFSET, query))["offset"] == "7"


def test_it_takes_no_messages() -> None:
    """Clients of stock store what they give back themselves where a broker refuses it."""
    _, broker = acting_cluster()
    end = broker.store.end_offset
    sent = broker.send(b"new")
    back = broker.request(
        RemotingCommand.request(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=0),
        )
    )
    assert sent is not None and back is not None
    assert {sent.code, back.code} == {ResponseCode.SYSTEM_BUSY}
    assert broker.store.end_offset == end and broker.topics.get(retry_topic("G")) is None


def test_locks_are_granted_and_freed() -> None:
    cluster, broker = acting_cluster()
    assert lock(cluster, broker, "c1") == [0, 1, 2]
    assert lock(cluster, broker, "c2") == []
    body = UnlockBatchRequestBody(consumer_group="G", client_id="c1", mq_set=QUEUES[:2])
    ok(ask(cluster, broker, RequestCode.UNLOCK_BATCH_MQ, body=encode_body(body)))
    assert lock(cluster, broker, "c2") == [0, 1]


class TestStrictMode:
    def test_most_brokers_of_the_group_grant_a_lock(self) -> None:
        cluster, broker = acting_cluster(2, lock_in_strict_mode=True)
        assert lock(cluster, broker, "c1") == [0, 1, 2]
        other = cluster.broker("a", 2)
        assert other.locks.owner("G", QUEUES[0]) == "c1"
        assert lock(cluster, broker, "c2") == []
        body = UnlockBatchRequestBody(consumer_group="G", client_id="c1", mq_set=QUEUES)
        ok(ask(cluster, broker, RequestCode.UNLOCK_BATCH_MQ, body=encode_body(body)))
        cluster.run(0.1)
        assert other.locks.owner("G", QUEUES[0]) is None
        assert lock(cluster, broker, "c2") == [0, 1, 2]

    def test_one_of_three_grants_none(self) -> None:
        cluster, broker = acting_cluster(2, lock_in_strict_mode=True)
        cluster.kill("a", 2)
        assert lock(cluster, broker, "c1") == []

    def test_one_of_two_grants_none(self) -> None:
        cluster, broker = acting_cluster(1, lock_in_strict_mode=True)
        assert lock(cluster, broker, "c1") == []
        master = cluster.start("a", 0)
        cluster.run_until(lambda: len(cluster.members("a")) == 2)
        cluster.run(2)
        assert lock(cluster, master, "c1") == [0, 1, 2]

    def test_what_another_broker_has_granted_is_not_granted_twice(self) -> None:
        """The master comes back, and a client has its locks of the one that acted."""
        cluster, broker = acting_cluster(2, lock_in_strict_mode=True)
        assert lock(cluster, broker, "c1") == [0, 1, 2]
        master = cluster.start("a", 0)
        cluster.run_until(lambda: len(cluster.members("a")) == 3)
        cluster.run(2)
        assert lock(cluster, master, "c2") == []
        assert lock(cluster, master, "c1") == []
        assert lock(cluster, master, "c1", only_this_broker=True) == []

    def test_a_broker_that_is_asked_asks_no_other(self) -> None:
        cluster, broker = acting_cluster(2, lock_in_strict_mode=True)
        assert lock(cluster, broker, "c1", only_this_broker=True) == [0, 1, 2]
        assert cluster.broker("a", 2).locks.owner("G", QUEUES[0]) is None

    def test_a_group_of_one_grants_by_itself(self) -> None:
        cluster = ActingCluster(settings={"lock_in_strict_mode": True})
        master = cluster.start("a", 0)
        cluster.run(1)
        assert lock(cluster, master, "c1") == [0, 1, 2]
