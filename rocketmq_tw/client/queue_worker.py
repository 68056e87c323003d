"""Reads one queue for a push consumer: pulls ahead, hands messages to the listener, and gives
back what was refused or cannot be read.

A worker lives from the rebalance that gives its queue to this consumer to the one that takes it.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from twisted.internet.defer import (
    CancelledError,
    Deferred,
    maybeDeferred,
    succeed,
)
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.client.message import PullStatus, ReceivedMessage
from rocketmq_tw.client.process_queue import ProcessQueue
from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.client.send_back import SendBack
from rocketmq_tw.client.session import logged
from rocketmq_tw.client.settings import ConsumerSettings
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.deadlines import Deadlines
from rocketmq_tw.runtime.fairness import SomeAtOnce
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.bodies.clients import SubscriptionData
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.errors import RequestError, WireError

#: Consumes one message: returns (or fires) when it is done, raises (or fails) to get it again.
MessageListener = Callable[[ReceivedMessage], Any]

_HOLD_SECONDS = 15.0
RETRY_PULL_SECONDS = 3.0
#: Between two tries of an ordered message, and before a message that could not be given back.
SUSPEND_SECONDS = 1.0
LOCAL_RETRY_SECONDS = 5.0
#: Refusals of a broker to keep a damaged message, after which the queue goes on without it.
MAX_REFUSALS = 10
#: Rounds in which an offset is kept.
_ROUNDS = 2
_FULL_SECONDS = 0.05


class WorkerTools(NamedTuple):
    """What all workers of a consumer have."""

    reader: QueuePuller
    listener: MessageListener
    send_back: SendBack
    settings: ConsumerSettings


class AssignedQueue(NamedTuple):
    """A queue that is read, by which subscription, and where to begin."""

    queue: MessageQueue
    subscription: SubscriptionData
    offset: int


class QueueWorker:
    """Base: the pull loop. Subclasses say how what was pulled is consumed."""

    log = Logger()

    def __init__(self, tools: WorkerTools, assigned: AssignedQueue) -> None:
        self.queue = assigned.queue
        self.messages = ProcessQueue(assigned.offset)
        self.stopped = False
        #: The offset that was kept last, and in how many rounds; None where it is not known.
        self.kept_offset: int | None = None
        self._kept_rounds = 0
        self._reader = tools.reader
        self._reactor = tools.reader.session.reactor
        self._subscription = assigned.subscription
        self._listener = tools.listener
        self._send_back = tools.send_back
        self._settings = tools.settings
        #: What is wrong with the bodies of open messages, by queue offset; and how often the
        #: broker refused them.
        self._problems: dict[int, str] = {}
        self._refusals: dict[int, int] = {}
        self._pause: Deferred[Any] | None = None
        self._running: Deferred[None] | None = None
        self._busy = 0
        self._idle: Waiters[None] = Waiters()

    def start(self) -> None:
        """Begins to pull."""
        self._running = logged(self.log, f"reading {self.queue}", self._run())

    def stop(self) -> None:
        """Pulls no more and starts no message; what the listener has goes on."""
        self.stopped = True
        if self._pause is not None:
            self._pause.cancel()

    def go_on_at(self, offset: int) -> None:
        """Reads on at `offset`. What is open counts no more: messages that wait are not begun, and
        what the listener does with others changes nothing."""
        self._restart(offset)
        if self._pause is not None:
            self._pause.cancel()

    def holds(self, message: ReceivedMessage) -> bool:
        """Returns whether the message is ours to handle: the queue is, and does not go on
        elsewhere."""
        return not self.stopped and self.messages.is_open(message)

    @property
    def must_be_kept(self) -> bool:
        """Whether the next round has to keep the offset. Each is kept twice: of the first offsets
        of a group and topic that reach stock's broker at once it stores one and confirms all."""
        return self.kept_offset != self.messages.commit_offset or self._kept_rounds < _ROUNDS

    def kept(self, offset: int) -> None:
        """Takes note that `offset` was kept."""
        self._kept_rounds = self._kept_rounds + 1 if offset == self.kept_offset else 1
        self.kept_offset = offset

    def idle(self) -> Deferred[None]:
        """Fires when the listener has no message of this queue."""
        return self._idle.wait() if self._busy else succeed(None)

    async def _run(self) -> None:
        while not self.stopped:
            try:
                await self._pull()
            except CancelledError:
                # It is stopped, or goes on elsewhere.
                continue
            except (RemotingError, ClientError, RequestError, WireError) as error:
                self.log.warn("pulling {queue}: {error}", queue=self.queue, error=error)
                if isinstance(error, RemotingError | BrokerError):
                    self._reader.session.suspect(error.address)
                await self._sleep(RETRY_PULL_SECONDS)
            except Exception:
                # Nobody else would read the queue as long as it is ours.
                self.log.failure("pulling {queue}", queue=self.queue)
                await self._sleep(RETRY_PULL_SECONDS)

    async def _pull(self) -> None:
        while self.messages.full and not self.stopped:
            await self._sleep(_FULL_SECONDS)
        # In a broadcast each consumer keeps its own offsets.
        commit = 0 if self._settings.broadcast else self.messages.commit_offset
        self._pause = Deferred.fromCoroutine(
            self._reader.pull(
                self.queue,
                self.messages.next_offset,
                expression=self._subscription.sub_string or "*",
                expression_type=self._subscription.expression_type,
                sub_version=self._subscription.sub_version,
                max_messages=self._settings.batch_size,
                suspend_seconds=_HOLD_SECONDS,
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
            self._restart(result.next_offset)
            return
        self._problems.update(result.problems)
        self.messages.add(result.messages, result.next_offset)
        if result.messages:
            self.consume(result.messages)

    def _restart(self, offset: int) -> None:
        self.messages.restart(offset)
        self.kept_offset = None
        self._problems.clear()
        self._refusals.clear()

    def consume(self, messages: list[ReceivedMessage]) -> None:
        """Consumes what was pulled."""
        raise NotImplementedError

    async def listen(self, message: ReceivedMessage) -> bool:
        """Gives the message to the listener; whether it is done with."""
        # Its failure may be any: asyncio's cancellation is no `Exception`.
        return await maybeDeferred(self._listener, message).addCallbacks(
            lambda _: True, self._listener_failed, errbackArgs=(message,)
        )

    def _listener_failed(self, failure: Failure, message: ReceivedMessage) -> bool:
        self.log.failure(
            "the listener failed on {id} of {queue}",
            failure=failure,
            id=message.message_id,
            queue=self.queue,
        )
        return False

    def is_damaged(self, message: ReceivedMessage) -> bool:
        """Returns whether the message's body is not what its producer sent; no listener gets it."""
        return message.queue_offset in self._problems

    async def put_aside(self, message: ReceivedMessage) -> bool:
        """Puts a damaged message aside; whether it is done with. One that the broker keeps
        refusing is passed over, so that it holds up nobody."""
        if not self.holds(message):
            return False
        offset = message.queue_offset
        problem = self._problems[offset]
        try:
            outcome = await self._send_back.put_aside(message)
        except (RemotingError, ClientError, RequestError, WireError) as error:
            if not self.messages.is_open(message):
                return False
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
            problem=problem,
            outcome=outcome,
        )
        if self.messages.is_open(message):
            del self._problems[offset]
            self._refusals.pop(offset, None)
        return True

    async def give_back(self, message: ReceivedMessage) -> bool:
        """Gives the message back for a later try; whether that worked."""
        return await self._sent_off(message, self._send_back.retry_later)

    async def give_up(self, message: ReceivedMessage) -> bool:
        """Gives the message to the dead-letter queue; whether that worked."""
        return await self._sent_off(message, self._send_back.give_up)

    async def _sent_off(
        self, message: ReceivedMessage, send: Callable[[ReceivedMessage], Awaitable[None]]
    ) -> bool:
        if not self.holds(message):
            # It comes again from the broker: to the consumer that has the queue now, or here.
            return False
        try:
            await send(message)
        except (RemotingError, ClientError, RequestError, WireError) as error:
            self.log.warn("giving back {id}: {error}", id=message.message_id, error=error)
            return False
        return True

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Wraps all that happens to one message, up to its being done."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.fire(None)

    async def _sleep(self, seconds: float) -> None:
        self._pause = deferLater(self._reactor, seconds)
        try:
            await self._pause
        except CancelledError:
            # It is stopped, or goes on elsewhere.
            pass
        finally:
            self._pause = None


class ConcurrentWorker(QueueWorker):
    """Messages are consumed beside each other, as many as `slots` of the consumer allow. One that
    fails is given back to the broker, which brings it again later through the retry topic. It has
    its slot only while it is with the listener: a broker that is gone holds up no others."""

    def __init__(self, tools: WorkerTools, assigned: AssignedQueue, slots: SomeAtOnce) -> None:
        super().__init__(tools, assigned)
        self._slots = slots
        #: Messages that could not be given back, by queue offset, until they are tried again.
        self._retries = Deadlines[int, ReceivedMessage](
            self._reactor, LOCAL_RETRY_SECONDS, lambda _, message: self.consume([message])
        )

    def stop(self) -> None:
        super().stop()
        self._retries.take_all()

    def consume(self, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            self._slots.run(self._start_consuming, message)

    def _restart(self, offset: int) -> None:
        super()._restart(offset)
        self._retries.take_all()

    def _start_consuming(self, message: ReceivedMessage) -> Deferred[None] | None:
        if not self.holds(message):
            return None
        return logged(self.log, f"consuming {self.queue}", self._consume(message))

    async def _consume(self, message: ReceivedMessage) -> None:
        with self.busy():
            if self.is_damaged(message) or not await self.listen(message):
                logged(self.log, f"giving back of {self.queue}", self._return(message))
            else:
                self.messages.done(message)

    async def _return(self, message: ReceivedMessage) -> None:
        with self.busy():
            damaged = self.is_damaged(message)
            if await (self.put_aside(message) if damaged else self.give_back(message)):
                self.messages.done(message)
        if self.holds(message):
            message.reconsume_times += 1
            self._retries.add(message.queue_offset, message)


class OrderlyWorker(QueueWorker):
    """Messages are consumed one after the other, and only while the queue is locked for us. One
    that fails is tried again until it is done, or goes to the dead-letter queue after
    `max_reconsume_times`."""

    def __init__(self, tools: WorkerTools, assigned: AssignedQueue, locked_until: float) -> None:
        super().__init__(tools, assigned)
        self._consuming = False
        #: The reactor's time until which the broker's lock is ours for certain.
        self.locked_until = locked_until

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
        """Returns whether the message is done with."""
        if self._reactor.seconds() >= self.locked_until:
            return False
        with self.busy():
            damaged = self.is_damaged(message)
            done = await (self.put_aside(message) if damaged else self.listen(message))
            if not done and not damaged:
                last = 0 <= self._settings.max_reconsume_times <= message.reconsume_times
                done = last and await self.give_up(message)
            if done:
                self.messages.done(message)
            else:
                message.reconsume_times += 1
        return done
