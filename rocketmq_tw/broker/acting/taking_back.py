"""What a broker takes from the slaves that went on without its group's master."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.replicas.metadata import SlaveMetadata, decode_offsets
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import ConsumerOffsetTable, DelayOffsetTable
from rocketmq_tw.wire.codes import RequestCode


class TakingBack(Part):
    """Takes over consumer offsets, those of transactions and of pop among them, and the progress of
    delay levels and of the timer. None of them goes back, but for groups that were put back on a
    slave."""

    def __init__(
        self, host: Host, metadata: SlaveMetadata, tables: Tables, delay: Delay, timer: Timer
    ) -> None:
        self.calls = metadata.calls
        self._in_slices = host.in_slices
        self._offsets = tables.offsets
        self._delays = delay.offsets
        self._timer = timer.books
        #: Of each queue in which a slave put a group back, the version of its offsets: another
        #: slave's count only where it did so later.
        self._put_back: dict[tuple[str, int], int] = {}

    def begin(self, *, as_slave: bool) -> None:
        """Forgets what slaves said at an earlier return. Where this broker is a slave that put
        groups back itself, another slave's offsets count there only where it did so later."""
        self._put_back = {}
        if as_slave:
            version = self._offsets.data_version.counter + 1
            for key, queue_ids in self._offsets.put_back().items():
                self._put_back |= dict.fromkeys([(key, each) for each in queue_ids], version)

    def has_newer(self, slave: str) -> Deferred[bool]:
        """Fires with whether the slave at this address has acted since it followed this broker:
        the version of its offsets says so. Fails as `take` does."""

        def is_newer(table: ConsumerOffsetTable) -> bool:
            version = table.data_version
            return version is not None and version.counter > self._offsets.data_version.counter

        asked = self.calls.table(slave, RequestCode.GET_ALL_CONSUMER_OFFSET, decode_offsets)
        return asked.addCallback(is_newer)

    @inlineCallbacks
    def take(self, slave: str) -> Generator[Deferred[Any], Any, None]:
        """Takes over what the slave at this address has; fires once it counts here, and is newer
        than what any slave has. Fails with `RequestError` or `RemotingError` where it does not
        tell."""
        yield self._take(slave, is_newest=True)

    @inlineCallbacks
    def keep_up(self, slave: str) -> Generator[Deferred[Any], Any, None]:
        """Takes over what the slave at this address has done so far, which acts beside this broker;
        fires and fails as `take` does."""
        self.begin(as_slave=True)
        yield self._take(slave, is_newest=False)

    @inlineCallbacks
    def _take(self, slave: str, *, is_newest: bool) -> Generator[Deferred[Any], Any, None]:
        consumers = yield self.calls.table(
            slave, RequestCode.GET_ALL_CONSUMER_OFFSET, decode_offsets
        )
        delays = yield self.calls.table(
            slave,
            RequestCode.GET_ALL_DELAY_OFFSET,
            lambda data: decode_body(DelayOffsetTable, data),
        )
        timer = yield self.calls.timer_checkpoint(slave)
        yield self._take_offsets(consumers, is_newest=is_newest)
        self._delays.take_back(delays)
        if timer is not None:
            self._timer.take_back(timer)

    def _take_offsets(self, table: ConsumerOffsetTable, *, is_newest: bool) -> Deferred[None]:
        version = 0 if table.data_version is None else table.data_version.counter
        for key, queue_ids in (table.put_back_queues or {}).items():
            for queue_id in queue_ids:
                known = self._put_back.get((key, queue_id), -1)
                self._put_back[key, queue_id] = max(version, known)

        def counts(key: str, queue_id: int) -> bool | None:
            known = self._put_back.get((key, queue_id))
            return None if known is None else known == version

        return self._in_slices(self._offsets.take_back(table, counts, is_newest=is_newest))
