"""Hears of the consumers of other proxies: each proxy reads all queues of the topic of `topic.py`,
from the messages on that still count."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketmq_tw.client.commands import (
    max_offset_command,
    pull_command,
    read_max_offset,
    read_pull_bytes,
    read_search_offset,
    search_offset_command,
)
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.client.message import PullStatus
from rocketmq_tw.message.model import COMPRESSED
from rocketmq_tw.message.record import RecordError, decode_records
from rocketmq_tw.net.errors import RemotingError, RequestTimeout
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.heartbeat_sync.topic import ASK_SECONDS, HeartbeatSyncTopic
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.slices import InSlices
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError, WireError

#: Seconds between two looks at the route.
_LOOK_SECONDS = 10.0
#: Messages of one pull, and seconds between two: 640 a second of each queue at most, whatever is
#: written into it.
PULLED = 32
PACE_SECONDS = 0.05
#: Messages that a reader may lag behind; what is older is left out.
MAX_LAG = 20_000
#: Seconds for which a broker holds an empty pull, and after which a failed one is tried again.
HOLD_SECONDS = 15.0
_AGAIN_SECONDS = 5.0

log = Logger()

#: Takes the body of a message, and for how many seconds it had been there when it was found.
Take = Callable[[bytes, float], None]


class TopicReader:
    """Gives the messages of all queues to `take`; `age` is how old, in seconds, a message may be
    that was there before."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        topic: HeartbeatSyncTopic,
        take: Take,
        age: Callable[[], float],
        in_slices: InSlices,
        now_ms: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._topic = topic
        self._take = take
        self._age = age
        self._in_slices = in_slices
        self._now_ms = now_ms
        #: The queues that are read, each with what stands for its reader: one that is no more in
        #: here ends, also where the queue has another reader since.
        self._reading: dict[MessageQueue, object] = {}
        #: Where each of them ended when it was found. What came since is new, whatever the time of
        #: the broker's clock.
        self._ends: dict[MessageQueue, int] = {}
        self._pauses: set[Deferred[None]] = set()
        self._looking = PeriodicCall(
            clock,
            "looking for the topic of proxies",
            _LOOK_SECONDS,
            lambda: Deferred.fromCoroutine(self._find_queues()),
            may_hang=True,
        )

    def start(self) -> None:
        """Reads from now on."""
        self._looking.start(now=True)

    def stop(self) -> None:
        """Reads no more."""
        self._looking.stop()
        self._reading.clear()
        for pause in tuple(self._pauses):
            pause.cancel()

    async def _find_queues(self) -> None:
        try:
            queues = await self._topic.find_queues()
        except RequestError as error:
            log.info("the queues of the topic of proxies are not known: {error}", error=error)
            return
        if not self._looking.is_running:
            return
        self._reading = {queue: its for queue, its in self._reading.items() if queue in queues}
        self._ends = {queue: end for queue, end in self._ends.items() if queue in self._reading}
        for queue in queues:
            if queue not in self._reading:
                reader = self._reading[queue] = object()
                Deferred.fromCoroutine(self._read(queue, reader))

    async def _read(self, queue: MessageQueue, reader: object) -> None:
        offset: int | None = None
        while self._reading.get(queue) is reader:
            pause = PACE_SECONDS
            try:
                offset = await self._read_on(queue, offset)
            except RequestTimeout:
                pass
            except (RemotingError, RequestError, BrokerError, WireError) as error:
                log.info(
                    "{queue}, where other proxies tell of consumers, cannot be read now: {error}",
                    queue=queue,
                    error=error,
                )
                pause = _AGAIN_SECONDS
                if isinstance(error, BrokerError):
                    await self._mend(queue, error)
            except Exception:
                log.failure("reading what other proxies tell of consumers failed")
                pause = _AGAIN_SECONDS
            if self._reading.get(queue) is reader:
                await self._sleep(pause)

    async def _mend(self, queue: MessageQueue, error: BrokerError) -> None:
        if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            await self._topic.create_group(queue.broker_name)

    async def _read_on(self, queue: MessageQueue, offset: int | None) -> int:
        """Takes what a queue has from an offset on, or from where a reader begins; returns where it
        goes on."""
        if offset is None:
            return await self._first_offset(queue)
        command = pull_command(
            self._topic.readers,
            queue,
            offset,
            max_messages=PULLED,
            suspend_seconds=HOLD_SECONDS,
        )
        name = queue.broker_name
        answer = await self._brokers.ask(name, command, HOLD_SECONDS + ASK_SECONDS)
        pulled = read_pull_bytes(name, answer)
        if pulled.status is PullStatus.FOUND and queue in self._reading:
            await self._in_slices(self._steps(pulled.records, self._ends.get(queue, 0)))
        if pulled.max_offset - pulled.next_offset > MAX_LAG:
            log.warn(
                "{queue}, where other proxies tell of consumers, has more than can be read: some is"
                " left out",
                queue=queue,
            )
            return pulled.max_offset - MAX_LAG // 2
        return pulled.next_offset

    def _steps(self, records: bytes, end: int) -> Iterator[None]:
        now_ms = self._now_ms()
        try:
            found = decode_records(records)
        except RecordError as error:
            # They would be damaged next time, too.
            log.warn(
                "messages in the topic of proxies are damaged and passed over: {error}", error=error
            )
            return
        for record in found:
            is_new = record.queue_offset >= end
            age = 0.0 if is_new else max(0.0, (now_ms - record.store_timestamp) / 1000)
            if not record.sys_flag & COMPRESSED:
                self._take(record.body, age)
            yield

    async def _first_offset(self, queue: MessageQueue) -> int:
        name = queue.broker_name
        since_ms = self._now_ms() - int(self._age() * 1000)
        answer = await self._brokers.ask(name, max_offset_command(queue), ASK_SECONDS)
        end = self._ends[queue] = read_max_offset(name, answer)
        command = search_offset_command(queue, since_ms)
        answer = await self._brokers.ask(name, command, ASK_SECONDS)
        return max(read_search_offset(name, answer), end - MAX_LAG // 2, 0)

    async def _sleep(self, seconds: float) -> None:
        pause: Deferred[None] = deferLater(self._clock, seconds)
        self._pauses.add(pause)
        pause.addErrback(lambda _: None)
        pause.addBoth(lambda _: self._pauses.discard(pause))
        await pause
