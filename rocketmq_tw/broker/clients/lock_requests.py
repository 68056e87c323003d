"""Orderly consumers lock the queues that they consume: 41, 42."""

from __future__ import annotations

from rocketmq_tw.broker.clients.locks import RebalanceLock
from rocketmq_tw.message import names
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import decode_request, encode_body
from rocketmq_tw.wire.bodies.locks import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand


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
        names.check_group(body.consumer_group)
        names.check_length("clientId", body.client_id)
        for queue in body.mq_set:
            names.check_length("topic", queue.topic)
            names.check_length("brokerName", queue.broker_name)
        locked = self._locks.lock(body.consumer_group, body.mq_set, body.client_id)
        return request.response(body=encode_body(LockBatchResponseBody(lock_ok_mq_set=locked)))

    def unlock(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        body = decode_request(UnlockBatchRequestBody, request.body)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return request.response()
