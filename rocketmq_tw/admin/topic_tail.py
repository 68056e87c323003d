"""Messages of a topic as they come, also in queues and on brokers that come later."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import attrs
from twisted.internet.task import deferLater

from rocketmq_tw.admin.message_reading import choose, chosen
from rocketmq_tw.admin.tool import Servers, warn
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.client.routes import subscribe_queues
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.runtime.log_throttle import LogThrottle
from rocketmq_tw.wire.bodies.queues import MessageQueue

# What opens connections is loaded once it is known whether they need TLS.
if TYPE_CHECKING:
    from rocketmq_tw.client.pull import QueuePuller

#: Seconds until queues that had nothing new are looked at again.
_IDLE_SECONDS = 0.5
#: Seconds between two looks at which queues there are.
_LOOK_SECONDS = 5.0


@attrs.define
class _Place:
    """Where a queue goes on; what was stored before `begin_ms` is left out."""

    offset: int
    begin_ms: int = 0


class TopicTail:
    """Reads the queues of a topic, or those that `broker` and `queue_id` name, from `offset` on,
    or from what was stored since `begin_ms`, or from their ends."""

    def __init__(
        self,
        servers: Servers,
        reader: QueuePuller,
        topic: str,
        *,
        broker: str | None = None,
        queue_id: int | None = None,
        offset: int | None = None,
        begin_ms: int | None = None,
    ) -> None:
        self._reactor = servers.reactor
        self._reader = reader
        self._topic = topic
        self._broker = broker
        self._queue_id = queue_id
        self._offset = offset
        self._begin_ms = begin_ms
        self._started_ms = wall_clock_ms()
        #: Also of queues that are away.
        self._places: dict[MessageQueue, _Place] = {}
        self._queues: Sequence[MessageQueue] = ()
        self._warned = LogThrottle[str]()

    @property
    def offsets(self) -> dict[MessageQueue, int]:
        """Where each queue goes on."""
        return {queue: place.offset for queue, place in self._places.items()}

    async def start(self) -> None:
        """Finds where queues begin; ends the command where there is none, and raises what their
        brokers answer where none is found."""
        queues = await self._reader.queues(self._topic)
        self._queues = choose(queues, self._topic, self._broker, self._queue_id)
        failures: list[Exception] = []
        for queue in self._queues:
            try:
                self._places[queue] = await self._first(queue)
            except (ClientError, RemotingError) as error:
                failures.append(error)
        if failures and not self._places:
            raise failures[0]
        for failure in failures:
            self._warn(failure)

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """Yields messages as they come, without end; goes on when a broker is back."""
        due = self._reactor.seconds() + _LOOK_SECONDS
        while True:
            if self._reactor.seconds() >= due:
                await self._look_for_queues()
                due = self._reactor.seconds() + _LOOK_SECONDS
            is_idle = True
            for queue in self._queues:
                place = self._places.get(queue)
                if place is None:
                    continue
                try:
                    pulled = await self._reader.pull(queue, place.offset)
                except (ClientError, RemotingError) as error:
                    self._warn(error)
                    continue
                place.offset = pulled.next_offset
                is_idle = is_idle and not pulled.messages
                for message in pulled.messages:
                    if message.store_timestamp >= place.begin_ms:
                        yield message
            if is_idle:
                await deferLater(self._reactor, _IDLE_SECONDS)

    async def _look_for_queues(self) -> None:
        """Takes the queues that there are now; without a route those before stay."""
        try:
            route = await self._reader.session.routes.refresh(self._topic)
            if route is None:
                return
            broker_of = self._reader.session.leaders.broker_of
            known = {broker_of(queue) for queue in self._places}
            queues = subscribe_queues(self._topic, route)
            self._queues = chosen(queues, self._broker, self._queue_id)
            for queue in self._queues:
                if queue not in self._places:
                    self._places[queue] = await self._first_of_late(queue, known)
        except (ClientError, RemotingError) as error:
            self._warn(error)

    async def _first(self, queue: MessageQueue) -> _Place:
        """Returns where a queue begins that is there from the start on."""
        if self._offset is None and self._begin_ms is None:
            return _Place(await self._reader.max_offset(queue))
        return await self._since(queue, self._begin_ms or 0)

    async def _first_of_late(self, queue: MessageQueue, known: set[str | None]) -> _Place:
        """Returns where a queue begins that came later: with all it has where its broker was
        there, else with what was stored since the start, for the broker may only have been
        away."""
        broker = self._reader.session.leaders.broker_of(queue)
        is_new = self._begin_ms is None and broker in known
        return await self._since(queue, 0 if is_new else self._begin_ms or self._started_ms)

    async def _since(self, queue: MessageQueue, begin_ms: int) -> _Place:
        if self._offset is not None:
            return _Place(self._offset, begin_ms)
        offset = await self._reader.min_offset(queue)
        if begin_ms:
            # Stock 4.9 may answer the one before or after the first that is wanted.
            offset = max(offset, await self._reader.search_offset(queue, begin_ms) - 1)
        return _Place(offset, begin_ms)

    def _warn(self, error: Exception) -> None:
        if self._warned.is_due(str(error)):
            warn(str(error))
