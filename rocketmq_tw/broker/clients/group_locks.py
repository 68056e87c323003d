"""Locks on queues that most brokers of the group have to grant (`lockInStrictMode`).

Around a change of the acting master two brokers of a group may both grant locks for a while. A lock
that more than half of `totalReplicas` brokers granted is held by one client only. Documents: "Slave
Acting Master", lock quorum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.client.commands import check_success
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds in which another broker of the group answers, as in stock.
_ANSWER_SECONDS = 1.0

log = Logger()


def _nobody() -> Mapping[int, str]:
    return {}


class GroupLocks:
    """Asks the other brokers of the group for locks. The part that knows them sets `others`, which
    returns broker id -> address of those that live."""

    def __init__(self, host: Host) -> None:
        self._config = host.config
        self._store_config = host.store_config
        self._client = host.client
        self.others: Callable[[], Mapping[int, str]] = _nobody

    @property
    def quorum(self) -> int:
        """How many brokers have to grant a lock, this one among them."""
        if not self._config.lock_in_strict_mode:
            return 1
        return self._store_config.total_replicas // 2 + 1

    def granted(
        self, asked: LockBatchRequestBody, own: Sequence[MessageQueue]
    ) -> Deferred[list[MessageQueue]]:
        """Fires with the queues among `own`, those that this broker granted, that a quorum grants;
        never fails. A broker that does not answer grants nothing."""
        if not own:
            return succeed([])
        body = msgspec.structs.replace(asked, only_this_broker=True, mq_set=list(own))
        answers = [self._lock(address, body) for address in self.others().values()]
        return DeferredList(answers).addCallback(self._by_most, own)

    def unlock(self, asked: UnlockBatchRequestBody) -> None:
        """Frees the locks at the other brokers too; nothing waits for it."""
        if self.quorum <= 1:
            return
        body = encode_body(msgspec.structs.replace(asked, only_this_broker=True))
        for address in self.others().values():
            code = RequestCode.UNLOCK_BATCH_MQ
            command = RemotingCommand.request(code, body=body, oneway=True)
            self._client.send_oneway(address, command).addErrback(_not_asked, address)

    def _by_most(
        self, answers: list[tuple[bool, list[MessageQueue]]], own: Sequence[MessageQueue]
    ) -> list[MessageQueue]:
        grants = Counter(own)
        for _, granted in answers:
            grants.update(set(granted))
        return [queue for queue in own if grants[queue] >= self.quorum]

    def _lock(self, address: str, body: LockBatchRequestBody) -> Deferred[list[MessageQueue]]:
        command = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=encode_body(body))

        def answered(response: RemotingCommand) -> list[MessageQueue]:
            granted = decode_body(LockBatchResponseBody, check_success(address, response).body)
            return granted.lock_ok_mq_set

        asked = self._client.request(address, command, _ANSWER_SECONDS)
        return asked.addCallback(answered).addErrback(_not_asked, address)


def _not_asked(failure: Failure, address: str) -> list[MessageQueue]:
    log.debug(
        "broker {address} of the group grants no locks: {why}",
        address=address,
        why=failure.getErrorMessage(),
    )
    return []
