"""Reads one queue for a push consumer: pulls ahead, hands messages to the listener, keeps count.

A worker lives from the rebalance that gives its queue to this consumer to the one that takes it.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.client.message import PullStatus, ReceivedMessage
from rocketmq_tw.client.process_queue import ProcessQueue
from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.client.session import logged
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.clients import SubscriptionData
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.errors import BodyError

#: Consumes one message: returns (or fires) when it is done, raises (or fails) to get it again.
MessageListener = Callable[[ReceivedMessage], Any]
#: Gives a message back to the broker for a later try; raises where that failed.
RetryLater = Callable[[ReceivedMessage], Awaitable[None]]
#: Puts a message with a damaged body aside: says what became of it; raises where that failed.
PutAside = Callable[[ReceivedMessage], Awaitable[str]]

HOLD_SECONDS = 15.0
RETRY_PULL_SECONDS = 3.0
#: Between two tries of an ordered message, and before a message that could not be given back.
SUSPEND_SECONDS = 1.0
LOCAL_RETRY_SECONDS = 5.0
#: So often a broker may refuse to keep a damaged message before the queue goes on without it.
MAX_REFUSALS = 10
_FULL_SECONDS = 0.05


class QueueWorker:
    """Base: the pull loop. Subclasses say how what was pulled is consumed."""

    log = Logger()

    def __init__(
        self,
        reader: QueuePuller,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        listener: MessageListener,
        retry_later: RetryLater,
        put_aside: PutAside,
        *,
        batch_size: int = 32,
        commit_while_pulling: bool = True,
    ) -> None:
        self.queue = queue
        self.messages = ProcessQueue(offset)
        self.stopped = False
        self._reader = reader
        self._reactor = reader.session.reactor
        self._subscription = subscription
        self._listener = listener
        self._retry_later = retry_later
        self._put_aside = put_aside
        #: What is wrong with the bodies of open messages, by queue offset; and how often the
        #: broker refused them.
        self._problems: dict[int, str] = {}
        self._refusals: dict[int, int] = {}
        self._batch_size = batch_size
        self._commit = commit_while_pulling
        self._pause: Deferred[Any] | None = None
        self._running: Deferred[None] | None = None
        self._busy = 0
        self._when_idle: list[Deferred[None]] = []

    def start(self) -> None:
        self._running = logged(self.log, f"reading {self.queue}", self._run())

    def stop(self) -> None:
        """Pulls no more and starts no message; what the listener has goes on."""
        self.stopped = True
        if self._pause is not None:
            self._pause.cancel()

    def idle(self) -> Deferred[None]:
        """Fires when the listener has no message of this queue."""
        idle: Deferred[None] = Deferred()
        if self._busy:
            self._when_idle.append(idle)
        else:
            idle.callback(None)
        return idle

    async def _run(self) -> None:
        while not self.stopped:
            try:
                await self._pull()
            except CancelledError:
                return
            except (RemotingError, ClientError, BodyError) as error:
                self.log.warn("pulling {queue}: {error}", queue=self.queue, error=error)
                if isinstance(error, RemotingError | BrokerError):
                    self._reader.session.suspect(error.address)
                await self._sleep(RETRY_PULL_SECONDS)

    async def _pull(self) -> None:
        while self.messages.full and not self.stopped:
            await self._sleep(_FULL_SECONDS)
        commit = self.messages.commit_offset if self._commit else 0
        self._pause = Deferred.fromCoroutine(
            self._reader.pull(
                self.queue,
                self.messages.next_offset,
                expression=self._subscription.sub_string or "*",
                expression_type=self._subscription.expression_type,
                sub_version=self._subscription.sub_version,
                max_messages=self._batch_size,
                suspend_seconds=HOLD_SECONDS,
                commit_offset=commit if commit > 0 else None,
                keep_damaged=True,
            )
        )
        try:
            result = await self._pause
        finally:
            self._pause = None
        if self.stopped:
            return
        if result.status is PullStatus.OFFSET_ILLEGAL:
            self.log.warn(
                "{queue} has no offset {offset}; going on at {next}",
                queue=self.queue,
                offset=self.messages.next_offset,
                next=result.next_offset,
            )
        self._problems.update(result.problems)
        self.messages.add(result.messages, result.next_offset)
        if result.messages:
            self.consume(result.messages)

    def consume(self, messages: list[ReceivedMessage]) -> None:
        """Consumes what was pulled."""
        raise NotImplementedError

    async def listen(self, message: ReceivedMessage) -> bool:
        """Gives the message to the listener; whether it is done with."""
        try:
            await maybeDeferred(self._listener, message)
        except Exception:
            self.log.failure(
                "the listener failed on {id} of {queue}",
                id=message.message_id,
                queue=self.queue,
            )
            return False
        return True

    def is_damaged(self, message: ReceivedMessage) -> bool:
        """Whether the message's body is not what its producer sent; no listener gets it."""
        return message.queue_offset in self._problems

    async def put_aside(self, message: ReceivedMessage) -> bool:
        """Puts a damaged message aside; whether it is done with. One that the broker keeps
        refusing is passed over, so that it holds up nobody."""
        if self.stopped:
            return False
        offset = message.queue_offset
        try:
            outcome = await self._put_aside(message)
        except (RemotingError, ClientError) as error:
            if isinstance(error, BrokerError):
                self._refusals[offset] = self._refusals.get(offset, 0) + 1
            if self._refusals.get(offset, 0) < MAX_REFUSALS:
                self.log.warn(
                    "putting the damaged message {id} aside: {error}",
                    id=message.message_id,
                    error=error,
                )
                return False
            outcome = f"it is passed over, since the broker does not keep it: {error}"
        self.log.error(
            "the message {id} at offset {offset} of {queue.topic}, queue {queue.queue_id} of"
            " {queue.broker_name}, is damaged: {problem}; {outcome}",
            id=message.message_id,
            offset=offset,
            queue=message.queue,
            problem=self._problems.pop(offset),
            outcome=outcome,
        )
        self._refusals.pop(offset, None)
        return True

    async def give_back(self, message: ReceivedMessage) -> bool:
        """Gives the message back to the broker; whether that worked."""
        if self.stopped:
            # Whoever has the queue now gets it from there.
            return False
        try:
            await self._retry_later(message)
        except (RemotingError, ClientError) as error:
            self.log.warn("giving back {id}: {error}", id=message.message_id, error=error)
            return False
        return True

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Around all that happens to one message, up to its being done."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                waiting, self._when_idle = self._when_idle, []
                for idle in waiting:
                    idle.callback(None)

    async def _sleep(self, seconds: float) -> None:
        self._pause = deferLater(self._reactor, seconds)
        try:
            await self._pause
        except CancelledError:
            if not self.stopped:
                raise
        finally:
            self._pause = None


class ConcurrentWorker(QueueWorker):
    """Messages are consumed beside each other, as many as `slots` of the consumer allow. One that
    fails is given back to the broker, which brings it again later through the retry topic."""

    def __init__(self, *args: Any, slots: DeferredSemaphore, **options: Any) -> None:
        super().__init__(*args, **options)
        self._slots = slots

    def consume(self, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            self._slots.run(self._start_consuming, message)

    def _start_consuming(self, message: ReceivedMessage) -> Deferred[None]:
        return logged(self.log, f"consuming {self.queue}", self._consume(message))

    async def _consume(self, message: ReceivedMessage) -> None:
        while not self.stopped:
            with self.busy():
                if self.is_damaged(message):
                    done = await self.put_aside(message)
                else:
                    done = await self.listen(message) or await self.give_back(message)
                if done:
                    self.messages.done(message)
                    return
                message.reconsume_times += 1
            await deferLater(self._reactor, LOCAL_RETRY_SECONDS)


class OrderlyWorker(QueueWorker):
    """Messages are consumed one after the other, and only while the queue is locked for us. One
    that fails is tried again until it is done, or given back after `max_reconsume_times`."""

    def __init__(self, *args: Any, max_reconsume_times: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._max_reconsume_times = max_reconsume_times
        self._consuming = False
        #: The reactor's time until which the broker's lock is ours for certain.
        self.locked_until = 0.0

    def consume(self, messages: list[ReceivedMessage]) -> None:
        if not self._consuming:
            self._consuming = True
            logged(self.log, f"consuming {self.queue}", self._consume_all())

    async def _consume_all(self) -> None:
        try:
            while not self.stopped:
                message = self.messages.first()
                if message is None:
                    return
                if not await self._try(message):
                    await deferLater(self._reactor, SUSPEND_SECONDS)
        finally:
            self._consuming = False

    async def _try(self, message: ReceivedMessage) -> bool:
        """Whether the message is done with."""
        if self._reactor.seconds() >= self.locked_until:
            return False
        with self.busy():
            damaged = self.is_damaged(message)
            done = await (self.put_aside(message) if damaged else self.listen(message))
            if not done and not damaged:
                message.reconsume_times += 1
                last = 0 <= self._max_reconsume_times < message.reconsume_times
                done = last and await self.give_back(message)
            if done:
                self.messages.done(message)
        return done
