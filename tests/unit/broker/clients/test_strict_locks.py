"""What a broker of the group that locks in strict mode asks of the others."""

from __future__ import annotations

import pytest

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode
from tests.support.broker import BrokerInMemory

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
