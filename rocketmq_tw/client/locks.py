"""The brokers' locks of queues: an ordered group never has a queue read by two members."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.client.errors import ClientError, check_success
from rocketmq_tw.client.name_servers import REQUEST_TIMEOUT
from rocketmq_tw.client.queue_worker import OrderlyWorker
from rocketmq_tw.client.session import Session, logged
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader

RENEW_SECONDS = 20.0
#: Seconds for which a client counts on a lock that was granted; brokers hold it for 60 s.
TRUST_SECONDS = 30.0


class QueueLocks:
    """Takes, renews and gives back the locks of one consumer."""

    log = Logger()

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._until: dict[MessageQueue, float] = {}
        self._workers: Callable[[], Mapping[MessageQueue, OrderlyWorker]] = dict
        self._renewals = PeriodicCall(
            session.reactor, "renewing locks", RENEW_SECONDS, self._renew_logged
        )

    def start(self, workers: Callable[[], Mapping[MessageQueue, OrderlyWorker]]) -> None:
        """Renews the locks of `workers()` from here on."""
        self._workers = workers
        self._renewals.start()

    def stop(self) -> None:
        """Renews no lock any more."""
        self._renewals.stop()

    def locked_until(self, queue: MessageQueue) -> float:
        """Returns the reactor's time until which the lock is ours for certain; 0 without one."""
        return self._until.get(queue, 0.0)

    async def acquire(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Locks as many of `queues` as brokers allow; returns those that are ours now."""
        # At once, as in `release`: a broker that hangs would hold up the others.
        asked = [
            Deferred.fromCoroutine(self._acquire_at(broker_name, of_broker))
            for broker_name, of_broker in self._by_broker(queues).items()
        ]
        return [queue for each in asked for queue in await each]

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Gives the locks back."""
        told = [
            logged(self.log, "unlocking", self._release_at(broker_name, of_broker))
            for broker_name, of_broker in self._by_broker(queues).items()
        ]
        for each in told:
            await each

    async def _acquire_at(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        asked_at = self._session.reactor.seconds()
        try:
            ours = await self._lock(broker_name, queues)
        except (ClientError, RemotingError, RequestError) as error:
            self.log.warn("locking: {error}", error=error)
            return []
        for queue in queues:
            if queue in ours:
                self._until[queue] = asked_at + TRUST_SECONDS
            else:
                self._until.pop(queue, None)
        return [queue for queue in queues if queue in ours]

    async def _release_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        for queue in queues:
            self._until.pop(queue, None)
        body = UnlockBatchRequestBody(
            consumer_group=self._group, client_id=self._session.client_id, mq_set=queues
        )
        header = UnlockBatchMqRequestHeader(bname=broker_name)
        command = RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, header, encode_body(body))
        address = self._session.broker_address(broker_name)
        await self._session.ask(address, command, check_success, REQUEST_TIMEOUT)

    async def _lock(self, broker_name: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        body = LockBatchRequestBody(
            consumer_group=self._group, client_id=self._session.client_id, mq_set=queues
        )
        header = LockBatchMqRequestHeader(bname=broker_name)
        command = RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, header, encode_body(body))
        address = self._session.broker_address(broker_name)
        response = await self._session.remoting.request(address, command, REQUEST_TIMEOUT)
        answer = decode_body(LockBatchResponseBody, check_success(address, response).body)
        return set(answer.lock_ok_mq_set)

    def _renew_logged(self) -> Deferred[None]:
        return logged(self.log, "renewing locks", self._renew_all())

    async def _renew_all(self) -> None:
        await self.acquire(list(self._workers()))
        for queue, worker in self._workers().items():
            worker.locked_until = self.locked_until(queue)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        """Returns the queues by the broker that serves them now; the lock of a logic queue has the
        same name at each."""
        sorted_by: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            sorted_by[self._session.leaders.broker_of(queue) or queue.broker_name].append(queue)
        return sorted_by
