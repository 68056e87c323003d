"""The push consumer: takes its share of a group's queues and feeds a listener.

Everything that a group agrees on is as stock's consumers have it, so Java and Python members of
one group share its queues: sorted client ids from the broker, sorted queues from the route, and
the same division of both.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError, maybeDeferred, succeed
from twisted.logger import Logger

from rocketmq_tw.client.errors import ClientError, NoRouteError, check_success
from rocketmq_tw.client.locks import QueueLocks
from rocketmq_tw.client.members import GroupMember
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.client.offsets import BrokerOffsets, FileOffsets, OffsetStore, first_offset
from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.client.queue_worker import (
    AssignedQueue,
    ConcurrentWorker,
    MessageListener,
    OrderlyWorker,
    QueueWorker,
    WorkerTools,
)
from rocketmq_tw.client.routes import allocate_averagely, any_address
from rocketmq_tw.client.send_back import SendBack
from rocketmq_tw.client.session import Session, logged
from rocketmq_tw.client.settings import DEFAULT_CONSUMER, ConsumerSettings
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.message.names import (
    RETRY_PREFIX,
    check_group,
    check_topic,
    retry_topic,
)
from rocketmq_tw.message.tags import SUBSCRIBE_ALL, TAG_TYPE, parse_tag_expression
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.fairness import SomeAtOnce
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.clients import (
    ConsumerData,
    ConsumerIdList,
    ConsumerRunningInfo,
    ProcessQueueInfo,
    SubscriptionData,
)
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError
from rocketmq_tw.wire.headers.clients import GetConsumerListByGroupRequestHeader

REBALANCE_SECONDS = 20.0
PERSIST_SECONDS = 5.0
#: Seconds in which nobody has gone on with a queue that was given up.
_SOON = 1.0


class PushConsumer(GroupMember):
    """Calls `listener(message)` for every message of the topics that are subscribed to.

    The listener is done when it returns, or when the Deferred or coroutine that it returned is;
    one that raises gets the message again: later and perhaps elsewhere, at most
    `settings.max_reconsume_times` times, then it goes to the dead-letter queue. A message may come
    more than once. `tls` is for a session of its own, which it makes where it is given none.

    A message whose body its CRC belies, or that cannot be unpacked, does not reach the listener:
    it goes to the dead-letter queue at once (in a broadcast: nowhere), and an error in the log
    says which it was.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        name_servers: str | Sequence[str],
        group: str,
        listener: MessageListener,
        *,
        session: Session | None = None,
        tls: TlsConfig | None = None,
        settings: ConsumerSettings = DEFAULT_CONSUMER,
    ) -> None:
        check_group(group)
        self.group = group
        self.session = session or Session(reactor, name_servers, tls=tls)
        self._reactor = reactor
        self._listener = listener
        self._settings = settings
        self._send_back = SendBack(self.session, group, settings)
        self._slots = SomeAtOnce(settings.concurrency, reactor)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._workers: dict[MessageQueue, QueueWorker] = {}
        #: The workers of queues that are given up, until that is done.
        self._leaving: dict[MessageQueue, QueueWorker] = {}
        self._reader = QueuePuller(self.session, group)
        self._offsets: OffsetStore = (
            FileOffsets(settings.offset_file) if settings.broadcast else BrokerOffsets(self._reader)
        )
        needs_locks = settings.orderly and not settings.broadcast
        self._locks = QueueLocks(self.session, group) if needs_locks else None
        self._periodic = [
            PeriodicCall(reactor, "rebalancing", REBALANCE_SECONDS, self.rebalance),
            PeriodicCall(reactor, "keeping offsets", PERSIST_SECONDS, self._persist_logged),
        ]
        self._rebalancing = False
        self._again = False
        self._is_started = False
        self._stopped = False

    # The application's side

    def subscribe(
        self, topic: str, expression: str = SUBSCRIBE_ALL, *, expression_type: str = TAG_TYPE
    ) -> None:
        """Wants `topic`: `a || b` for tags, `*` for all, or an SQL92 expression. All members of
        a group must subscribe to the same."""
        check_topic(topic)
        subscription = SubscriptionData(
            topic=topic,
            sub_string=expression,
            expression_type=expression_type,
            sub_version=self.session.now_ms(),
        )
        if expression_type == TAG_TYPE:
            parsed = parse_tag_expression(expression)
            subscription.sub_string = parsed.text
            subscription.tags_set = sorted(parsed.tags)
            subscription.code_set = sorted(parsed.codes)
        self._subscriptions[topic] = subscription

    def start(self) -> Deferred[None]:
        """Joins the group; fires after the first division of the queues."""
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[None]:
        """Leaves the group: waits for the listener, keeps the offsets, gives the queues free; a
        second call changes nothing."""
        return Deferred.fromCoroutine(self._stop())

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours at the moment, retry queues included."""
        return sorted(self._workers)

    def offset(self, queue: MessageQueue) -> int | None:
        """Returns the offset up to which all of a queue is done; None where it is not ours."""
        worker = self._workers.get(queue)
        return None if worker is None else worker.messages.commit_offset

    def rebalance(self) -> Deferred[None]:
        """Divides the queues anew; one that comes while one is going on follows it."""
        if self._stopped:
            return succeed(None)
        if self._rebalancing:
            self._again = True
            return succeed(None)
        self._rebalancing = True
        return logged(self.log, "rebalancing", self._rebalance_all())

    # Life

    async def _start(self) -> None:
        if not self._settings.broadcast:
            self.subscribe(retry_topic(self.group))
        self.session.add_consumer(self)
        self._is_started = True
        self.session.start()
        for topic in self._subscriptions:
            await self._refresh(topic)
        if self._stopped:
            return
        await self.session.heartbeat()
        await self.rebalance()
        if self._stopped:
            return
        for call in self._periodic:
            call.start()
        if self._locks is not None:
            self._locks.start(self._orderly_workers)

    async def _stop(self) -> None:
        if not self._is_started:
            await self.session.close_unused()
            return
        self._is_started = False
        self._stopped = True
        for call in self._periodic:
            call.stop()
        workers = [*self._workers.values(), *self._leaving.values()]
        for worker in workers:
            worker.stop()
        deadline = self._reactor.seconds() + self._settings.stop_seconds
        for worker in workers:
            idle = worker.idle()
            idle.addTimeout(max(0.0, deadline - self._reactor.seconds()), self._reactor)
            try:
                await idle
            except TimeoutError:
                self.log.warn("{queue}: stopping while the listener is busy", queue=worker.queue)
        await logged(self.log, "keeping offsets", self._persist_at_stop())
        if self._locks is not None:
            self._locks.stop()
            await self._locks.release([*self._workers, *self._leaving])
        self._workers.clear()
        await self.session.remove_consumer(self.group)
        await self.session.stop()

    # What brokers ask and tell

    def describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if self._settings.broadcast else "CLUSTERING",
            consume_from_where=self._settings.start_from.value,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def members_changed(self) -> None:
        self.rebalance()

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        return {
            queue: worker.messages.commit_offset
            for queue, worker in self._workers.items()
            if topic in ("", queue.topic)
        }

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={
                "PROP_CLIENT_VERSION": "V5_3_3",
                "PROP_CONSUME_ORDERLY": "true" if self._settings.orderly else "false",
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_NAMESERVER_ADDR": ";".join(self.session.names.addresses),
            },
            subscription_set=list(self._subscriptions.values()),
            mq_table={
                queue: ProcessQueueInfo(
                    commit_offset=worker.messages.commit_offset,
                    cached_msg_count=len(worker.messages),
                    cached_msg_size_in_mib=worker.messages.size >> 20,
                    locked=isinstance(worker, OrderlyWorker),
                )
                for queue, worker in self._workers.items()
            },
        )

    def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> Deferred[None]:
        return Deferred.fromCoroutine(self._reset_offsets(offsets))

    def consume_now(self, message: ReceivedMessage) -> Deferred[None]:
        return maybeDeferred(self._consume, message)

    async def _reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            worker = self._workers.get(queue)
            if worker is not None:
                worker.go_on_at(offset)
        await self._persist()

    # Dividing the queues

    async def _rebalance_all(self) -> None:
        try:
            await self.session.heartbeat_missed()
            again = True
            while again and not self._stopped:
                self._again = False
                for topic in list(self._subscriptions):
                    await self._rebalance_topic(topic)
                again = self._again
        finally:
            self._rebalancing = False

    async def _rebalance_topic(self, topic: str) -> None:
        try:
            queues = await self._reader.queues(topic)
            mine = queues if self._settings.broadcast else await self._my_share(topic, queues)
        except (ClientError, RemotingError, RequestError) as error:
            if not (isinstance(error, NoRouteError) and topic.startswith(RETRY_PREFIX)):
                self.log.warn("rebalancing {topic}: {error}", topic=topic, error=error)
            return
        if self._stopped:
            return
        given_up = [q for q in self._workers if q.topic == topic and q not in mine]
        left = [self._leave(queue) for queue in given_up]
        if not self._settings.orderly:
            for each in left:
                await each
        wanted = [q for q in mine if q not in self._workers and q not in self._leaving]
        if self._locks is not None and wanted:
            wanted = await self._locks.acquire(wanted)
        taken = [logged(self.log, f"the offset of {queue}", self._take(queue)) for queue in wanted]
        for each in taken:
            await each

    async def _my_share(self, topic: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        address = any_address(await self.session.route(topic))
        if address is None:
            raise NoRouteError(f"no broker has {topic}")
        header = GetConsumerListByGroupRequestHeader(consumer_group=self.group)
        command = RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        members = await self.session.ask(
            address,
            command,
            lambda address, response: (
                decode_body(ConsumerIdList, check_success(address, response).body).consumer_id_list
            ),
        )
        return allocate_averagely(queues, sorted(members), self.session.client_id)

    async def _take(self, queue: MessageQueue) -> None:
        offset = await first_offset(queue, self._offsets, self._reader, self._settings)
        if self._stopped or queue in self._workers or queue in self._leaving:
            return
        worker = self._make_worker(queue, offset)
        self._workers[queue] = worker
        worker.start()

    def _leave(self, queue: MessageQueue) -> Deferred[None]:
        """Gives a queue up. What must keep its order stays ours until the listener is done with
        it."""
        worker = self._workers.pop(queue)
        worker.stop()
        self._leaving[queue] = worker
        return logged(self.log, f"leaving {queue}", self._finish(worker))

    async def _finish(self, worker: QueueWorker) -> None:
        queue = worker.queue
        try:
            if self._settings.orderly:
                await worker.idle()
            if worker.must_be_kept:
                await logged(self.log, f"the offset of {queue}", self._keep_at_leaving(worker))
            if self._locks is not None:
                await self._locks.release([queue])
        finally:
            del self._leaving[queue]

    def _make_worker(self, queue: MessageQueue, offset: int) -> QueueWorker:
        assigned = AssignedQueue(queue, self._subscriptions[queue.topic], offset)
        tools = WorkerTools(self._reader, self._consume, self._send_back, self._settings)
        if not self._settings.orderly:
            return ConcurrentWorker(tools, assigned, self._slots)
        locks = self._locks
        locked_until = inf if locks is None else locks.locked_until(queue)
        return OrderlyWorker(tools, assigned, locked_until)

    # Consuming

    def _consume(self, message: ReceivedMessage) -> Any:
        message.restore_topic()
        return self._listener(message)

    # Offsets

    def _persist_logged(self) -> Deferred[None]:
        return logged(self.log, "keeping offsets", self._persist())

    async def _persist(self) -> None:
        await self._keep_all(worker for worker in self._workers.values() if worker.must_be_kept)

    async def _persist_at_stop(self) -> None:
        await self._persist()
        # A broker that kept nothing is not asked, and waited for, again.
        await self._keep_all(
            worker
            for worker in self._workers.values()
            if worker.must_be_kept and worker.kept_offset == worker.messages.commit_offset
        )

    async def _keep_all(self, workers: Iterable[QueueWorker]) -> None:
        # At once: a broker that hangs would hold up the offsets of others.
        kept = [
            logged(self.log, f"the offset of {worker.queue}", self._keep(worker))
            for worker in workers
        ]
        for each in kept:
            await each

    async def _keep(self, worker: QueueWorker) -> None:
        offset = worker.messages.commit_offset
        try:
            await self._offsets.write({worker.queue: offset})
        except RemotingError as error:
            self.session.suspect(error.address)
            raise
        worker.kept(offset)

    async def _keep_at_leaving(self, worker: QueueWorker) -> None:
        """Keeps the offset of a queue that is given up in all rounds that are left; in one where
        that takes long, as another member may have gone on by then."""
        began = self._reactor.seconds()
        await self._keep(worker)
        if worker.must_be_kept and self._reactor.seconds() - began < _SOON:
            await self._keep(worker)

    def _orderly_workers(self) -> dict[MessageQueue, OrderlyWorker]:
        return {
            queue: worker
            for queue, worker in (self._workers | self._leaving).items()
            if isinstance(worker, OrderlyWorker)
        }

    async def _refresh(self, topic: str) -> None:
        try:
            await self.session.routes.refresh(topic)
        except (ClientError, WireError) as error:
            self.log.warn("the route of {topic}: {error}", topic=topic, error=error)
