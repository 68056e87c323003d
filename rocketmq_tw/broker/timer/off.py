"""Stands for the timer on a broker that has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Periodic
from rocketmq_tw.broker.timer.books import TimerBooks
from rocketmq_tw.broker.timer.keeping import PROGRESS_TABLE, TimerKeeper
from rocketmq_tw.broker.timer.places import TimedPlaces
from rocketmq_tw.broker.timer.progress import TimerCheckpoint
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


class TimerOff:
    """In place of `TimerEngine` with timerWheelEnable=false: leaves the files as they are, follows
    a master's checkpoint and keeps that. All its figures are 0, as in stock."""

    #: Nothing is done in any role.
    work = None
    messages_behind = 0
    enqueue_latency_ms = 0

    def __init__(self, host: Host, writing: Writing) -> None:
        self.books = TimerBooks(host, writing.store)
        self._keeper = TimerKeeper(host, writing.commit, self.books)
        self._places = TimedPlaces(writing.store, self.books)
        self._seconds = host.store_config.timer_flush_interval_ms / 1000

    def start(self) -> Deferred[Any] | None:
        """See `TimerEngine`."""
        return None

    def begin(self) -> None:
        """See `TimerEngine`."""

    def end(self) -> Deferred[None]:
        """See `TimerEngine`."""
        return succeed(None)

    def close(self) -> Deferred[None]:
        """See `TimerEngine`."""
        return succeed(None)

    def table(self) -> KeptTable:
        """Returns the checkpoint's file."""
        load, save = self.books.progress.load, self._keeper.save_followed
        return KeptTable(PROGRESS_TABLE, load, save, self._seconds)

    def periodic(self) -> Iterable[Periodic]:
        """See `TimerEngine`."""
        return ()

    def places(self) -> Iterator[int]:
        """Yields the log offset of the first message of the timer's topic that is not read."""
        checkpoint = self.books.progress.checkpoint or TimerCheckpoint()
        return self._places.of_topic(checkpoint.queue_offset)

    def checkpoint(self) -> TimerCheckpoint | None:
        """Returns how far the master's timer is, as far as that is known."""
        return self.books.progress.checkpoint

    def behind_ms(self) -> int:
        """See `TimerEngine`."""
        return 0

    def counts(self) -> NoReturn:
        """Raises `RequestError`: there are none."""
        raise RequestError(ResponseCode.SYSTEM_ERROR, "no timer: timerWheelEnable=false")

    def snapshot(self) -> Iterable[Metric]:
        """See `TimerEngine`."""
        return ()
