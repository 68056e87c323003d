"""Locks on queues, as orderly consumers ask for them."""

import pytest

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
