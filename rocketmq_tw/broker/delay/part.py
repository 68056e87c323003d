"""The delay levels, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.log_cut import LogCut
from rocketmq_tw.broker.assembly.part import KeptTable, Part, TakeBack
from rocketmq_tw.broker.delay.cut import DeliveredBehind
from rocketmq_tw.broker.delay.delivery import DelayDelivery
from rocketmq_tw.broker.delay.levels import DelayLevels, queue_of
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.progress import write_progress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Stage
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import DELAY
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand


class Delay(Part):
    """Lets messages wait for their level, delivers them while the broker is the master, and tells
    how far that is (45)."""

    def __init__(self, host: Host, role: RoleHolder, writing: Writing) -> None:
        self._host = host
        self._store = writing.store
        self._commit = writing.commit
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
        # At once: what it would append is refused from the moment when the role is another.
        role.on_end(self.delivery.pause)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.all_offsets}

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.store_config.flush_delay_offset_interval / 1000
        return [KeptTable("the delay progress", self.offsets.load, self.delivery.persist, seconds)]

    def ready(self, state: RoleState) -> None:
        # Not before: until then other parts may still look where the log ends.
        if state.role is Role.MASTER:
            self.delivery.start()

    def leave(self, state: RoleState) -> Deferred[None]:
        return self.delivery.stop()

    def truncating(self, cut: LogCut) -> TakeBack:
        return partial(self._take_back, DeliveredBehind(self._store, self.levels, cut))

    @inlineCallbacks
    def _take_back(self, behind: DeliveredBehind) -> Generator[Deferred[Any], Any, None]:
        yield self._host.in_slices(behind.take_back(self.offsets))
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
