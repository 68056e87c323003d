"""The push consumer: takes its share of a group's queues and feeds a listener.

Everything that a group agrees on is as stock's consumers have it, so Java and Python members of
one group share its queues: sorted client ids from the broker, sorted queues from the route, and
the same division of both.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore, TimeoutError, maybeDeferred, succeed
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from rocketmq_tw.client.allocation import allocate_averagely
from rocketmq_tw.client.errors import ClientError, NoRouteError, check_success
from rocketmq_tw.client.locks import QueueLocks
from rocketmq_tw.client.members import GroupMember
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.client.offsets import BrokerOffsets, FileOffsets, OffsetStore
from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.client.queue_worker import (
    ConcurrentWorker,
    MessageListener,
    OrderlyWorker,
    QueueWorker,
)
from rocketmq_tw.client.routes import any_address
from rocketmq_tw.client.send_back import SendBack
from rocketmq_tw.client.session import Session, logged
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.message.names import (
    RETRY_PREFIX,
    check_group,
    check_topic,
    retry_topic,
)
from rocketmq_tw.message.tags import SUBSCRIBE_ALL, TAG_TYPE, parse_tag_expression
from rocketmq_tw.net.errors import RemotingError
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
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.headers.clients import GetConsumerListByGroupRequestHeader

REBALANCE_SECONDS = 20.0
PERSIST_SECONDS = 5.0
#: How long `stop` waits for messages that the listener has.
STOP_SECONDS = 10.0


class StartFrom(Enum):
    """Where a group begins with a queue that it has no offset of; a value is stock's name."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class PushConsumer(GroupMember):
    """Calls `listener(message)` for every message of the topics that are subscribed to.

    The listener is done when it returns, or when the Deferred or coroutine that it returned is;
    one that raises gets the message again: later and perhaps elsewhere, at most
    `max_reconsume_times` times (-1: stock's 16, or without end where `orderly`), then it goes to
    the dead-letter queue. A message may come more than once. Up to `concurrency` messages are
    with the listener at a time; with `orderly` one of each queue, in order. With `broadcast` each
    consumer gets all messages, failed ones are dropped, and offsets are in `offset_file`.

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
        orderly: bool = False,
        broadcast: bool = False,
        start_from: StartFrom = StartFrom.LAST,
        start_timestamp_ms: int = 0,
        concurrency: int = 20,
        batch_size: int = 32,
        max_reconsume_times: int = -1,
        offset_file: str | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.session = session or Session(reactor, name_servers, tls=tls)
        self._reactor = reactor
        self._listener = listener
        self._orderly = orderly
        self._broadcast = broadcast
        self._start_from = start_from
        self._start_timestamp_ms = start_timestamp_ms
        self._batch_size = batch_size
        self._max_reconsume_times = max_reconsume_times
        self._send_back = SendBack(
            self.session, group, broadcast=broadcast, max_reconsume_times=max_reconsume_times
        )
        self._slots = DeferredSemaphore(concurrency)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._workers: dict[MessageQueue, QueueWorker] = {}
        #: The workers of queues that are given up, until that is done.
        self._leaving: dict[MessageQueue, QueueWorker] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._reader = QueuePuller(self.session, group)
        self._offsets: OffsetStore = (
            FileOffsets(offset_file) if broadcast else BrokerOffsets(self._reader)
        )
        self._locks = QueueLocks(self.session, group) if orderly and not broadcast else None
        self._loops = [
            (LoopingCall(self.rebalance), REBALANCE_SECONDS),
            (LoopingCall(self._persist_logged), PERSIST_SECONDS),
        ]
        for loop, _ in self._loops:
            loop.clock = reactor
        self._rebalancing = False
        self._again = False
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
        """Leaves the group: waits for the listener, keeps the offsets, gives the queues free."""
        return Deferred.fromCoroutine(self._stop())

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are ours at the moment, retry queues included."""
        return sorted(self._workers)

    def offset(self, queue: MessageQueue) -> int | None:
        """The offset up to which all of a queue is done; None where it is not ours."""
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
        if not self._broadcast:
            self.subscribe(retry_topic(self.group))
        self.session.add_consumer(self)
        self.session.start()
        for topic in self._subscriptions:
            await self._refresh(topic)
        await self.session.heartbeat()
        await self.rebalance()
        for loop, interval in self._loops:
            loop.start(interval, now=False)
        if self._locks is not None:
            self._locks.start(self._orderly_workers)

    async def _stop(self) -> None:
        self._stopped = True
        for loop, _ in self._loops:
            if loop.running:
                loop.stop()
        workers = [*self._workers.values(), *self._leaving.values()]
        for worker in workers:
            worker.stop()
        deadline = self._reactor.seconds() + STOP_SECONDS
        for worker in workers:
            idle = worker.idle()
            idle.addTimeout(max(0.0, deadline - self._reactor.seconds()), self._reactor)
            try:
                await idle
            except TimeoutError:
                self.log.warn("{queue}: stopping while the listener is busy", queue=worker.queue)
        await logged(self.log, "keeping offsets", self._persist())
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
            message_model="BROADCASTING" if self._broadcast else "CLUSTERING",
            consume_from_where=self._start_from.value,
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
                "PROP_CONSUME_ORDERLY": "true" if self._orderly else "false",
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
        left = [
            self._leave(queue, offset)
            for queue, offset in offsets.items()
            if queue in self._workers
        ]
        for each in left:
            await each
        await self.rebalance()

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
            mine = queues if self._broadcast else await self._my_share(topic, queues)
        except (ClientError, RemotingError) as error:
            if not (isinstance(error, NoRouteError) and topic.startswith(RETRY_PREFIX)):
                self.log.warn("rebalancing {topic}: {error}", topic=topic, error=error)
            return
        if self._stopped:
            return
        for queue in [q for q in self._workers if q.topic == topic and q not in mine]:
            left = self._leave(queue)
            if not self._orderly:
                await left
        wanted = [q for q in mine if q not in self._workers and q not in self._leaving]
        if self._locks is not None and wanted:
            wanted = await self._locks.acquire(wanted)
        for queue in wanted:
            await self._take(queue)

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
        try:
            offset = await self._first_offset(queue)
        except (ClientError, RemotingError) as error:
            self.log.warn("the offset of {queue}: {error}", queue=queue, error=error)
            return
        if self._stopped or queue in self._workers or queue in self._leaving:
            return
        worker = self._make_worker(queue, offset)
        self._workers[queue] = worker
        worker.start()

    def _leave(self, queue: MessageQueue, reset_to: int | None = None) -> Deferred[None]:
        """Gives a queue up: for others, or to come back at the offset `reset_to`. What must keep
        its order stays ours until the listener is done with it."""
        worker = self._workers.pop(queue)
        worker.stop()
        self._leaving[queue] = worker
        return logged(self.log, f"leaving {queue}", self._finish(worker, reset_to))

    async def _finish(self, worker: QueueWorker, reset_to: int | None) -> None:
        queue = worker.queue
        try:
            if self._orderly or reset_to is not None:
                await worker.idle()
            kept = self._committed.pop(queue, None)
            offset = worker.messages.commit_offset if reset_to is None else reset_to
            if offset != kept or reset_to is not None:
                await logged(self.log, "keeping offsets", self._offsets.write({queue: offset}))
            if self._locks is not None:
                await self._locks.release([queue])
        finally:
            del self._leaving[queue]

    def _make_worker(self, queue: MessageQueue, offset: int) -> QueueWorker:
        arguments = (
            self._reader,
            queue,
            self._subscriptions[queue.topic],
            offset,
            self._consume,
            self._send_back.retry_later,
            self._send_back.put_aside,
        )
        options: dict[str, Any] = {
            "batch_size": self._batch_size,
            "commit_while_pulling": not self._broadcast,
        }
        if not self._orderly:
            return ConcurrentWorker(*arguments, slots=self._slots, **options)
        worker = OrderlyWorker(*arguments, max_reconsume_times=self._max_reconsume_times, **options)
        worker.locked_until = (
            float("inf") if self._locks is None else self._locks.locked_until(queue)
        )
        return worker

    async def _first_offset(self, queue: MessageQueue) -> int:
        kept = await self._offsets.read(queue)
        if kept is not None and kept >= 0:
            return kept
        if queue.topic.startswith(RETRY_PREFIX) or self._start_from is StartFrom.FIRST:
            return 0
        if self._start_from is StartFrom.TIMESTAMP:
            return await self._reader.search_offset(queue, self._start_timestamp_ms)
        return await self._reader.max_offset(queue)

    # Consuming

    def _consume(self, message: ReceivedMessage) -> Any:
        message.restore_topic()
        return self._listener(message)

    # Offsets

    def _persist_logged(self) -> Deferred[None]:
        return logged(self.log, "keeping offsets", self._persist())

    async def _persist(self) -> None:
        for queue, worker in list(self._workers.items()):
            offset = worker.messages.commit_offset
            if self._workers.get(queue) is not worker or self._committed.get(queue) == offset:
                # Somebody else may have it by now, and be further on.
                continue
            try:
                await self._offsets.write({queue: offset})
            except (ClientError, RemotingError) as error:
                self.log.warn("the offset of {queue}: {error}", queue=queue, error=error)
                continue
            if self._workers.get(queue) is worker:
                self._committed[queue] = offset

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
