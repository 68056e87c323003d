"""Takes over what the slaves that went on without its group's master did meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.replicas.copied_tables import CopiedTables, decode_offsets
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.timer.progress import TimerCheckpoint
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import ConsumerOffsetTable, DelayOffsetTable
from rocketmq_tw.wire.codes import RequestCode


class _Progress(NamedTuple):
    """What a slave has done; `timer` is None where it has no timer."""

    consumers: ConsumerOffsetTable
    delays: DelayOffsetTable
    timer: TimerCheckpoint | None

    @property
    def version(self) -> int:
        """How late its offsets are: a slave that begins to act makes theirs later than all that it
        knows."""
        version = self.consumers.data_version
        return 0 if version is None else version.counter


class TakingBack(Part):
    """Takes over consumer offsets, those of transactions and of pop among them, and the progress of
    delay levels and of the timer. None of them goes back, but for groups that were put back on a
    slave: there that slave's count, from the larger ones of slaves that acted later on."""

    def __init__(
        self, host: Host, copied: CopiedTables, tables: Tables, delay: Delay, timer: Timer
    ) -> None:
        self.calls = copied.calls
        self._in_slices = host.in_slices
        self._offsets = tables.offsets
        self._reconciling = tables.reconciling
        self._delays = delay.offsets
        self._timer = timer.books
        #: Of each queue in which a slave put a group back, the version of its offsets, the latest
        #: one where several did.
        self._put_back: dict[tuple[str, int], int] = {}
        #: Of these, those where offsets of that version count already.
        self._counted: dict[tuple[str, int], int] = {}

    def begin(self, *, as_slave: bool) -> None:
        """Forgets what slaves said at an earlier return. Where this broker is a slave that put
        groups back itself, another slave's offsets count there only where it acted later."""
        self._put_back, self._counted = {}, {}
        if as_slave:
            version = self._offsets.data_version.counter
            for key, queue_ids in self._reconciling.put_back().items():
                self._put_back |= dict.fromkeys([(key, each) for each in queue_ids], version)
            self._counted = dict(self._put_back)

    def has_newer(self, slave: str) -> Deferred[bool]:
        """Fires with whether the slave at this address has acted since it followed this broker:
        the version of its offsets says so. Fails as `take` does."""

        def is_newer(table: ConsumerOffsetTable) -> bool:
            version = table.data_version
            return version is not None and version.counter > self._offsets.data_version.counter

        asked = self.calls.table(slave, RequestCode.GET_ALL_CONSUMER_OFFSET, decode_offsets)
        return asked.addCallback(is_newer)

    @inlineCallbacks
    def take(self, *slaves: str) -> Generator[Deferred[Any], Any, None]:
        """Takes over what the slaves at these addresses have; fires once it counts here, and is
        newer than what any of them has. Fails with `RequestError` or `RemotingError` where one does
        not tell."""
        told = []
        for slave in slaves:
            told.append((yield self._ask(slave)))
        # What a later one had does not go back to what an earlier one put a group back to.
        for progress in sorted(told, key=lambda each: each.version):
            yield self._count(progress, is_newest=True)

    @inlineCallbacks
    def keep_up(self, slave: str, log_end: int) -> Generator[Deferred[Any], Any, None]:
        """Takes over what the slave at this address has done so far, which acts beside this broker
        and whose log ends at `log_end`; fires and fails as `take` does."""
        self.begin(as_slave=True)
        yield self._count((yield self._ask(slave)), is_newest=False, log_end=log_end)

    @inlineCallbacks
    def _ask(self, slave: str) -> Generator[Deferred[Any], Any, _Progress]:
        consumers = yield self.calls.table(
            slave, RequestCode.GET_ALL_CONSUMER_OFFSET, decode_offsets
        )
        delays = yield self.calls.table(
            slave,
            RequestCode.GET_ALL_DELAY_OFFSET,
            lambda data: decode_body(DelayOffsetTable, data),
        )
        timer = yield self.calls.timer_checkpoint(slave)
        return _Progress(consumers, delays, timer)

    @inlineCallbacks
    def _count(
        self, progress: _Progress, *, is_newest: bool, log_end: int | None = None
    ) -> Generator[Deferred[Any], Any, None]:
        yield self._take_offsets(progress, is_newest=is_newest)
        self._delays.take_back(progress.delays, log_end)
        if progress.timer is not None:
            self._timer.take_back(progress.timer)

    def _take_offsets(self, progress: _Progress, *, is_newest: bool) -> Deferred[None]:
        table, version = progress.consumers, progress.version
        marked = {
            (key, queue_id)
            for key, queue_ids in (table.put_back_queues or {}).items()
            for queue_id in queue_ids
        }
        for place in marked:
            self._put_back[place] = max(version, self._put_back.get(place, -1))

        def counts(key: str, queue_id: int) -> bool | None:
            known = self._put_back.get((key, queue_id))
            if known is None:
                return None
            if version < known:
                return False
            place = key, queue_id
            if place not in marked or self._counted.get(place) == version:
                # It was later, or is the same change: one of the two has copied the other.
                return None
            self._counted[place] = version
            return True

        return self._in_slices(self._reconciling.take_back(table, counts, is_newest=is_newest))
