"""Orderly consumers lock the queues that they consume: 41, 42."""

from __future__ import annotations

from collections.abc import Sized

from rocketmq_tw.broker.clients.locks import RebalanceLock
from rocketmq_tw.message import names
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import decode_request, encode_body
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Queues of one request; a consumer asks for those of one topic that are its own.
MAX_QUEUES = 10_000


class LockRequests:
    def __init__(self, locks: RebalanceLock) -> None:
        self._locks = locks

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        body = decode_request(LockBatchRequestBody, request.body)
        _check_number(body.mq_set)
        names.check_group(body.consumer_group)
        names.check_length("clientId", body.client_id)
        for queue in body.mq_set:
            names.check_length("topic", queue.topic)
            names.check_length("brokerName", queue.broker_name)
        locked = self._locks.lock(body.consumer_group, body.mq_set, body.client_id)
        return request.response(body=encode_body(LockBatchResponseBody(lock_ok_mq_set=locked)))

    def unlock(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        body = decode_request(UnlockBatchRequestBody, request.body)
        _check_number(body.mq_set)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return request.response()


def _check_number(queues: Sized) -> None:
    if len(queues) > MAX_QUEUES:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER, f"{len(queues)} queues at once: ask for {MAX_QUEUES}"
        )
