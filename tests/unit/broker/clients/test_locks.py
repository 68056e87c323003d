"""Locks on queues: who gets them, the requests, and the file by which they outlive the broker."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.clients import locks as locks_module
from rocketmq_tw.broker.clients.locks import LOCK_EXPIRES_MS, RebalanceLock
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.asked import refused
from tests.support.broker import BrokerInMemory, fired


class Time:
    now = 1_000

    def __call__(self) -> int:
        return self.now


def test_a_queue_is_locked_for_one_client() -> None:
    locks = RebalanceLock(Time())
    assert locks.lock("G", ["q0", "q1"], "c1") == ["q0", "q1"]
    assert locks.lock("G", ["q1", "q2"], "c2") == ["q2"]
    assert locks.lock("other", ["q1"], "c2") == ["q1"]
    assert locks.owner("G", "q1") == "c1"
    assert locks.holds_any("G")
    assert not locks.holds_any("nobody")


def test_only_the_owner_unlocks() -> None:
    locks = RebalanceLock(Time())
    locks.lock("G", ["q0"], "c1")
    locks.unlock("G", ["q0", "q9"], "c2")
    locks.unlock("nobody", ["q0"], "c2")
    assert locks.owner("G", "q0") == "c1"
    locks.unlock("G", ["q0"], "c1")
    assert locks.lock("G", ["q0"], "c2") == ["q0"]


def test_a_lock_that_is_not_renewed_falls_to_another() -> None:
    time = Time()
    locks = RebalanceLock(time)
    locks.lock("G", ["q0", "q1"], "c1")
    time.now += LOCK_EXPIRES_MS
    assert locks.lock("G", ["q0"], "c2") == []
    assert locks.lock("G", ["q1"], "c1") == ["q1"]
    time.now += 1
    assert locks.lock("G", ["q0", "q1"], "c2") == ["q0"]


def test_expired_locks_are_forgotten() -> None:
    time = Time()
    locks = RebalanceLock(time)
    locks.lock("G", ["q0"], "c1")
    time.now += LOCK_EXPIRES_MS + 1
    assert not locks.holds_any("G")
    for _ in locks.forget_expired():
        pass
    assert not locks._groups


def test_locks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "MAX_LOCKS", 3)
    time = Time()
    locks = RebalanceLock(time)
    assert locks.lock("G", ["q0", "q1"], "c1") == ["q0", "q1"]
    assert locks.lock("H", ["q0", "q1"], "c1") == ["q0"]
    assert locks.lock("G", ["q0", "q1"], "c1") == ["q0", "q1"], "renewed"
    locks.unlock("G", ["q0"], "c1")
    assert locks.lock("H", ["q1", "q2"], "c1") == ["q1"]
    time.now += LOCK_EXPIRES_MS + 1
    for _ in locks.forget_expired():
        pass
    assert locks.lock("K", ["q0", "q1", "q2", "q3"], "c1") == ["q0", "q1", "q2"]


def test_queues_are_locked_and_unlocked(plane: BrokerInMemory) -> None:
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)

    def lock(client_id: str) -> list[MessageQueue]:
        body = LockBatchRequestBody(consumer_group="G", client_id=client_id, mq_set=[queue])
        answer = plane.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        return decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set

    assert lock("c1") == [queue]
    assert lock("c2") == []
    plane.ask(
        RequestCode.UNLOCK_BATCH_MQ,
        body=UnlockBatchRequestBody(consumer_group="G", client_id="c1", mq_set=[queue]),
    )
    assert lock("c2") == [queue]


@pytest.mark.parametrize(
    "body",
    [
        LockBatchRequestBody(consumer_group="G", client_id="c" * 256),
        LockBatchRequestBody(consumer_group="G/../H", client_id="c"),
        LockBatchRequestBody(
            consumer_group="G",
            client_id="c",
            mq_set=[MessageQueue(topic="t" * 256, broker_name="b", queue_id=0)],
        ),
        LockBatchRequestBody(
            consumer_group="G",
            client_id="c",
            mq_set=[MessageQueue(topic="t", broker_name="b" * 256, queue_id=0)],
        ),
    ],
)
def test_a_lock_keeps_no_name_that_nothing_could_have(
    plane: BrokerInMemory, body: LockBatchRequestBody
) -> None:
    with pytest.raises(RequestError):
        plane.ask(RequestCode.LOCK_BATCH_MQ, body=body)
    assert not plane.locks.holds_any("G")


def test_requests_of_one_go_have_their_limits(plane: BrokerInMemory) -> None:
    queues = [MessageQueue(topic="T", broker_name="broker-a", queue_id=n) for n in range(10_001)]
    body = LockBatchRequestBody(consumer_group="G", client_id="c", mq_set=queues)
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        with refused(ResponseCode.INVALID_PARAMETER):
            plane.ask(code, body=body)
    with refused(ResponseCode.INVALID_PARAMETER):
        fired(plane.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=false\n" * 5_000))
    assert plane.config.trace_on


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


class TestLocksOfABrokerThatStartsAgain:
    """Clients go on with their queues for half a minute while it is away."""

    QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=1)

    def lock(self, broker: BrokerInMemory, client_id: str) -> bool:
        body = LockBatchRequestBody(consumer_group="G", client_id=client_id, mq_set=[self.QUEUE])
        answer = broker.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        return bool(decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set)

    def unlock(self, broker: BrokerInMemory, client_id: str) -> None:
        body = UnlockBatchRequestBody(consumer_group="G", client_id=client_id, mq_set=[self.QUEUE])
        broker.ask(RequestCode.UNLOCK_BATCH_MQ, body=body)

    def test_a_queue_stays_with_who_has_it(self, files: MemoryFiles) -> None:
        before = BrokerInMemory(files)
        assert self.lock(before, "c1")
        # Killed a second later.
        before.clock.advance(1)
        again = BrokerInMemory(files.kill())
        assert not self.lock(again, "c2")
        assert self.lock(again, "c1")
        again.clock.advance(31)
        assert not self.lock(again, "c2")

    def test_who_does_not_come_back_has_it_for_half_a_minute(self, files: MemoryFiles) -> None:
        before = BrokerInMemory(files)
        assert self.lock(before, "c1")
        before.stop()
        again = BrokerInMemory(files)
        again.clock.advance(30)
        assert not self.lock(again, "c2")
        again.clock.advance(0.1)
        assert self.lock(again, "c2")

    def test_what_was_given_back_is_free(self, files: MemoryFiles) -> None:
        before = BrokerInMemory(files)
        assert self.lock(before, "c1")
        before.clock.advance(1)
        self.unlock(before, "c1")
        before.stop()
        assert self.lock(BrokerInMemory(files), "c2")

    def test_a_renewal_writes_nothing(self, files: MemoryFiles) -> None:
        before = BrokerInMemory(files)
        assert self.lock(before, "c1")
        before.clock.advance(1)
        path = "/store/config/rebalanceLock.json"
        files.remove(path)
        assert self.lock(before, "c1")
        before.clock.advance(1)
        assert not files.exists(path)

    def test_a_damaged_file_is_as_none(self, files: MemoryFiles) -> None:
        before = BrokerInMemory(files)
        assert self.lock(before, "c1")
        before.stop()
        for name in ("rebalanceLock.json", "rebalanceLock.json.bak"):
            files.open(f"/store/config/{name}", create=True).pwrite(b"[", 0)
        assert self.lock(BrokerInMemory(files), "c2")


QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=1)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE"])
def test_any_role_locks_by_itself(role: str) -> None:
    broker = BrokerInMemory(broker_role=role)

    def lock(client_id: str) -> list[MessageQueue]:
        body = LockBatchRequestBody(
            consumer_group="G", client_id=client_id, only_this_broker=True, mq_set=[QUEUE]
        )
        answer = broker.ask(RequestCode.LOCK_BATCH_MQ, body=body)
        return decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set

    assert lock("c1") == [QUEUE]
    assert lock("c2") == []
    unlock = UnlockBatchRequestBody(
        consumer_group="G", client_id="c1", only_this_broker=True, mq_set=[QUEUE]
    )
    broker.ask(RequestCode.UNLOCK_BATCH_MQ, body=unlock)
    assert lock("c2") == [QUEUE]


def test_locks_of_a_former_master_hold_half_a_minute_more() -> None:
    """Its clients go on for so long without a word; from then on the next master's count."""
    time = Time()
    locks = RebalanceLock(time)
    locks.lock("G", ["q0", "q1"], "c1")
    locks.end_role()
    time.now += locks_module.LOCK_OUTLIVES_MS
    assert locks.owner("G", "q0") == "c1"
    assert locks.lock("G", ["q0"], "c2") == []
    assert locks.lock("G", ["q1"], "c1") == ["q1"], "it is there, and renews"
    time.now += 1
    assert locks.owner("G", "q0") is None
    assert locks.lock("G", ["q0", "q1"], "c2") == ["q0"]


def test_a_broker_that_is_no_master_any_more_ends_its_locks() -> None:
    broker = BrokerInMemory()
    broker.locks.lock("G", ["q0"], "c1")
    broker.become(RoleState(Role.SLAVE, 1))
    broker.clock.advance(locks_module.LOCK_OUTLIVES_MS / 1000 + 1)
    broker.become(RoleState(Role.MASTER, 0))
    assert broker.locks.lock("G", ["q0"], "c2") == ["q0"]
