"""Check points in the timer's topic, in a store that a stock 5 broker wrote
(docs/formats/pop.md, "The order of things").

Stock keeps each check point and acknowledgement in the timer's topic until it is nearly due. Here
they go straight into the revive topic; so what the timer still held when stock stopped is taken
over once, in its order. How far that is stands among the consumer offsets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.pop.check_points import REVIVE_GROUP, all_stored, is_revive_queue
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import TIMER_TOPIC, revive_topic
from rocketmq_tw.message.properties import join_properties, parse_properties
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.store.queue_batches import next_batch
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.errors import RequestError

log = Logger()


class TimedCheckPoints(Part):
    """Takes over what stock's timer holds when the broker becomes the master, before any of it can
    be acknowledged; while it acts for its master, another broker gets it."""

    def __init__(
        self, host: Host, role: RoleHolder, writing: Writing, tables: Tables, timer: Timer
    ) -> None:
        self._host = host
        self._role = role
        self._store = writing.store
        self._sink = writing.sink
        self._offsets = tables.offsets
        self._timer = timer
        self._revive_topic = revive_topic(host.config.broker_cluster_name)
        #: Whether nothing of another broker is left, in this role.
        self._has_taken_over = False

    def periodic(self) -> Iterable[Periodic]:
        seconds = self._host.config.revive_interval / 1000
        yield Periodic("passing over timed messages", seconds, self._pass_over, (Role.MASTER,))
        yield Periodic(
            "the escape of timed check points", seconds, self._let_escape, (Role.ACTING_MASTER,)
        )

    def enter(self, state: RoleState) -> Deferred[Any] | None:
        if state.role is not Role.MASTER:
            return None
        taken = self.take_over() if self.is_behind else succeed(None)

        def ended(_: object) -> None:
            self._has_taken_over = not self.is_behind

        return taken.addCallback(ended)

    def leave(self, state: RoleState) -> None:
        self._pass_over()
        self._has_taken_over = False

    @property
    def is_behind(self) -> bool:
        """Whether the timer's topic has messages that were not looked at yet."""
        return self._next() < self._store.max_queue_offset(TIMER_TOPIC, 0)

    @inlineCallbacks
    def take_over(self) -> Generator[Deferred[Any], Any, None]:
        """Puts what is not delivered into the revive topic. Ends where something cannot be stored,
        and goes on there the next time."""
        count = 0
        try:
            while (handed_on := (yield self._hand_on())) is not None:
                count += handed_on
        except RequestError as error:
            log.error(
                "check points of pops that a timer of stock's holds are not taken over: {why}",
                why=error.remark,
            )
        if count:
            log.info(
                "{count} check points and acknowledgements of pops that a timer of stock's"
                " held are taken over",
                count=count,
            )

    @inlineCallbacks
    def _hand_on(self) -> Generator[Deferred[Any], Any, int | None]:
        """Stores what some messages of the timer's topic stand for, the next ones, and then notes
        that they were looked at. Fires with how many check points and acknowledgements those were,
        None where there are no more messages; fails with `RequestError` where one could not be
        stored."""
        # Not from the end of the last one: the offset may be moved meanwhile.
        read = next_batch(self._store, TIMER_TOPIC, 0, self._next())
        if read is None:
            return None
        checkpoint = self._timer.progress.checkpoint
        delivered = 0 if checkpoint is None else checkpoint.read_ms
        looked_at = [self._due(message, delivered) for message in decode_records(read.data)]
        found = [due for due in looked_at if due is not None]
        yield all_stored(self._sink.put(due, wait=True) for due in found)
        if not found:
            # Others are served between one look and the next.
            yield deferLater(self._host.reactor, 0)
        self._offsets.commit(REVIVE_GROUP, TIMER_TOPIC, 0, read.next_offset, "revive")
        return len(found)

    @inlineCallbacks
    def _let_escape(self) -> Generator[Deferred[Any], Any, None]:
        """Sends on what a timer of stock's, whose log this broker copied, holds; the offset moves
        once another broker has it. What fails is tried again the next time."""
        scope = self._role.scope
        try:
            while not scope.is_over and (yield self._hand_on()) is not None:
                pass
        except RequestError as error:
            log.warn(
                "check points of pops that a timer of stock's holds wait here: {why}",
                why=error.remark,
            )

    def _pass_over(self) -> None:
        """Notes that what came since all was taken over is this broker's own, no check points: the
        next start need not look at it."""
        end = self._store.max_queue_offset(TIMER_TOPIC, 0)
        if self._has_taken_over and end > self._next():
            self._offsets.commit(REVIVE_GROUP, TIMER_TOPIC, 0, end, "revive")

    def _next(self) -> int:
        """Returns the first offset of the timer's topic that was not looked at."""
        return max(
            self._offsets.query(REVIVE_GROUP, TIMER_TOPIC, 0),
            self._store.min_queue_offset(TIMER_TOPIC, 0),
        )

    def _due(self, message: StoredMessage, delivered: int) -> StoredMessage | None:
        """Returns what the timer would put into the revive topic later; None for any other message.
        `delivered`: up to this time, in ms, stock's timer has delivered."""
        properties = parse_properties(message.properties)
        if properties.pop(props.REAL_TOPIC, None) != self._revive_topic:
            return None
        queue_id = _number(properties.pop(props.REAL_QID, ""))
        if queue_id < 0:
            return None
        configured = self._host.config.revive_queue_num
        if not is_revive_queue(self._store, self._revive_topic, configured, queue_id):
            # Nobody would read it: the broker that left it had more of them.
            queue_id %= configured
        if _number(properties.pop(props.TIMER_OUT_MS, "")) < delivered:
            return None
        now = self._host.now_ms()
        properties[props.TIMER_DELIVER_MS] = str(now)
        return msgspec.structs.replace(
            message,
            topic=self._revive_topic,
            queue_id=queue_id,
            properties=join_properties(properties),
        )


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1
