"""Messages for a time of their own, as a part of the broker: how far they are delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.progress import write_progress
from rocketmq_tw.broker.timer.progress import TimerProgress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError


class Timer(Part):
    """Keeps the checkpoint that slaves follow, and tells it (60)."""

    def __init__(self, host: Host, writing: Writing) -> None:
        self.progress = TimerProgress(host.files, writing.store.paths.config)
        self._host = host
        self._writing = writing

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return {RequestCode.GET_TIMER_CHECK_POINT: self.checkpoint}

    def tables(self) -> Iterable[KeptTable]:
        def save() -> Deferred[Any]:
            return write_progress(self.progress, self._writing.commit, self._host.in_thread)

        seconds = self._host.store_config.flush_delay_offset_interval / 1000
        return [KeptTable("the timer progress", self.progress.load, save, seconds)]

    def checkpoint(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Raises `RequestError` where there is none, as stock with its timer off: a zero would make
        a slave of stock believe that time starts anew."""
        checkpoint = self.progress.checkpoint
        if checkpoint is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "no timer was ever at work here")
        return request.response(body=checkpoint.encode())
