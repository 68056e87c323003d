"""The delay levels, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets
from rocketmq_tw.broker.delay.levels import DelayLevels, queue_of
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.delay.work import DelayWork
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Stage
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import DELAY
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.still_needed import place_of
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.queues import DelayOffsetTable
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand

log = Logger()


class Delay(Part):
    """Lets messages wait for their level, delivers them in a role that does so, and tells how far
    that is (45)."""

    def __init__(self, host: Host, role: RoleHolder, writing: Writing) -> None:
        self._host = host
        self._role = role
        self._writing = writing
        self.levels = DelayLevels(host.store_config.message_delay_level)
        self.offsets = DelayOffsets(host.config, host.table_file("delayOffset"), host.now_ms)
        #: The work of the present role, where it delivers.
        self.work: DelayWork | None = None
        writing.redirects.by_property(Stage.DELAY_LEVEL, (DELAY,), self.levels.redirect)
        writing.store.retention.still_needed.register("delayed messages", self._places)
        writing.truncation.register(
            DerivedOffsets(
                "delay offsets",
                lambda cut: self.offsets.rewind(writing.store, self.levels, cut),
                self._write_offsets,
                self._pause,
                self._resume,
            )
        )

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.all_offsets}

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.store_config.flush_delay_offset_interval / 1000
        return [KeptTable("the delay progress", self.offsets.load, self._save, seconds)]

    def ready(self, state: RoleState) -> None:
        # Not before: until then other parts may still look where the log ends.
        if state.role.delivers:
            self.work = DelayWork(
                self._host,
                self._writing,
                self.levels,
                self.offsets,
                self._role.scope,
                acts=state.role is Role.ACTING_MASTER,
            )
            self.work.begin()

    @inlineCallbacks
    def leave(self, state: RoleState) -> Generator[Deferred[Any], Any, None]:
        yield self._pause()
        self.work = None
        yield self._save()

    def follow(self, table: DelayOffsetTable, log_end: int) -> None:
        """Takes over what a master has, whose log ended at `log_end` before; not while this broker
        delivers by its own offsets."""
        if self.work is None:
            self.offsets.follow(table, log_end)

    def _pause(self) -> Deferred[None]:
        return succeed(None) if self.work is None else self.work.pause()

    def _resume(self) -> None:
        """Goes on where the role was not left meanwhile: a slave's log may be cut while it acts for
        its master."""
        if self.work is not None:
            self.work.begin()

    def _places(self) -> Iterator[int]:
        """Yields where in the log the first message of each level stands that waits."""
        store = self._writing.store
        for level in self.levels.in_use(store):
            yield from place_of(store, SCHEDULE_TOPIC, queue_of(level), self.offsets.get(level))

    def _save(self) -> Deferred[None]:
        return self._write_offsets().addErrback(
            lambda failure: log.failure(
                "the offsets of delayed messages are not saved; trying again later", failure
            )
        )

    def _write_offsets(self) -> Deferred[None]:
        """Fires once they are in the file, after what they stand for is durable."""
        return write_progress(self.offsets, self._writing.commit, self._host.in_thread)

    def runtime_info(self) -> Mapping[str, str]:
        """Tells, of each level that had messages, how far it is delivered, and its queue's end."""
        end = self._writing.store.max_queue_offset
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{end(SCHEDULE_TOPIC, queue_of(level))}"
            for level, offset in self.offsets.table().offset_table.items()
        }

    def all_offsets(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 45: the offsets of all delay levels, for slaves."""
        return request.response(body=encode_body(self.offsets.table()))
