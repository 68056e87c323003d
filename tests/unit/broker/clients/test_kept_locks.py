"""Locks on queues outlive the broker."""

import pytest

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode
from tests.support.broker import BrokerInMemory


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
