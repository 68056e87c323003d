"""The delay levels, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.log_cut import LogCut
from rocketmq_tw.broker.assembly.part import KeptTable, Part, TakeBack
from rocketmq_tw.broker.delay.cut import DeliveredBehind
from rocketmq_tw.broker.delay.delivery import DelayDelivery
from rocketmq_tw.broker.delay.handed_over import HandedOver
from rocketmq_tw.broker.delay.levels import DelayLevels, queue_of
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Stage
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import DELAY
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand

log = Logger()


class Delay(Part):
    """Lets messages wait for their level, delivers them while the broker is the master, and tells
    how far that is (45)."""

    def __init__(self, host: Host, role: RoleHolder, writing: Writing) -> None:
        self._host = host
        self._store = writing.store
        self._commit = writing.commit
        self._dispatcher = writing.dispatcher
        self.levels = DelayLevels(host.store_config.message_delay_level)
        self.offsets = DelayOffsets(host.table_file("delayOffset"), host.now_ms)
        self.delivery = DelayDelivery(
            writing.store,
            self.levels,
            self.offsets,
            writing.commit,
            host.reactor,
            host.now_ms,
            host.in_thread,
        )
        writing.redirects.by_property(Stage.DELAY_LEVEL, (DELAY,), self.levels.redirect)
        writing.store.on_arrival(self.delivery.arrived)
        #: Ends the master's waiting for its queues.
        self._stop_waiting = lambda: None
        #: How often a role has ended.
        self._ends = 0
        # At once: what it would append is refused from the moment when the role is another.
        role.on_end(self._pause)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.all_offsets}

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.store_config.flush_delay_offset_interval / 1000
        return [KeptTable("the delay progress", self.offsets.load, self.delivery.persist, seconds)]

    def ready(self, state: RoleState) -> None:
        # Not before: until then other parts may still look where the log ends.
        if state.role is Role.MASTER:
            self._stop_waiting = self._dispatcher.when_dispatched(self._begin)

    def leave(self, state: RoleState) -> Deferred[None]:
        return self.delivery.stop()

    def _pause(self) -> None:
        self._ends += 1
        self._stop_waiting()
        self.delivery.pause()

    def _begin(self) -> None:
        begin, self.offsets.followed_at = self.offsets.followed_at, None
        if begin is None:
            self.delivery.start()
        else:
            self._take_over(begin)

    def _take_over(self, begin: int) -> None:
        """Delivery begins behind what the former master has delivered."""
        ends = self._ends
        handed_over = HandedOver(self._store, self.levels, self.offsets, begin)

        def steps() -> Iterator[None]:
            for _ in handed_over.steps():
                yield
                if self._ends != ends:
                    return

        def taken_over(_: object) -> None:
            if self._ends == ends:
                log.info(
                    "the former master has delivered {count} more delayed messages than it told",
                    count=handed_over.count,
                )
                self.delivery.start()

        def failed(failure: Failure) -> None:
            log.failure("what was delivered last may come once more", failure)

        self._host.in_slices(steps()).addErrback(failed).addCallback(taken_over)

    def truncating(self, cut: LogCut) -> TakeBack:
        return partial(self._take_back, DeliveredBehind(self._store, self.levels, cut), cut.end)

    @inlineCallbacks
    def _take_back(
        self, behind: DeliveredBehind, log_end: int
    ) -> Generator[Deferred[Any], Any, None]:
        yield self._host.in_slices(behind.take_back(self.offsets))
        self.offsets.log_is_cut(log_end)
        yield write_progress(self.offsets, self._commit, self._host.in_thread)

    def runtime_info(self) -> Mapping[str, str]:
        """Of each level that something waited in: how far it is delivered, and its queue's end."""
        end = self._store.max_queue_offset
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{end(SCHEDULE_TOPIC, queue_of(level))}"
            for level, offset in self.offsets.table().offset_table.items()
        }

    def all_offsets(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(body=encode_body(self.offsets.table()))
