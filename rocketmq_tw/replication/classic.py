"""Classic HA (docs/formats/ha.md): the frames, both ends of a link, and what a send waits for.

Slave to master: 8 bytes, the offset up to which the slave has the log. Master to slave: 8 bytes of
log offset, 4 bytes of size and that many bytes of the log as they are; size 0 is a heartbeat. All
big-endian.

A synchronous send of a SYNC_MASTER waits as stock's inSyncReplicas family says. SYNC_MASTER
promises a second copy. Stock 5.3.3 gives up that promise with its default `inSyncReplicas=1`; here,
as in stock 4.9, SYNC_MASTER means one slave at the least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from struct import Struct
from typing import NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.replication.interfaces import IReplicatedLog
from rocketmq_tw.replication.links.client import HAClient
from rocketmq_tw.replication.links.ends import LinkError, MasterLink, ReadLog, SlaveLink
from rocketmq_tw.replication.links.service import HAService, too_few
from rocketmq_tw.replication.links.settings import HASettings

REPORT = Struct(">q")
TRANSFER_HEADER = Struct(">qi")

#: Stock's slave reads through a buffer of 4 MiB, so no master sends a larger frame.
MAX_TRANSFER = 4 * 1024 * 1024 - TRANSFER_HEADER.size


class Transfer(NamedTuple):
    """Log bytes that start at `offset`; without bytes a heartbeat."""

    offset: int
    data: bytes


class ReportReader:
    """Cuts a slave's stream into reports."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """Returns the newest whole report in `data`; None where none is complete."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        (offset,) = REPORT.unpack_from(data, whole - REPORT.size)
        return int(offset)


class TransferReader:
    """Cuts a master's stream into transfers; holds one incomplete frame at most."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Transfer]:
        """Returns the transfers that `data` completes. Raises `LinkError` at an impossible size."""
        self._buffer += data
        transfers = []
        position = 0
        while len(self._buffer) - position >= TRANSFER_HEADER.size:
            offset, size = TRANSFER_HEADER.unpack_from(self._buffer, position)
            if not 0 <= size <= MAX_TRANSFER or offset < 0:
                raise LinkError(f"the master announced {size} bytes at offset {offset}")
            start = position + TRANSFER_HEADER.size
            if len(self._buffer) < start + size:
                break
            transfers.append(Transfer(offset, bytes(self._buffer[start : start + size])))
            position = start + size
        del self._buffer[:position]
        return transfers


class ClassicMasterLink(MasterLink):
    """A master's end of a link. An empty slave starts at the beginning of the log's last file, as
    in stock (docs/formats/ha.md)."""

    def __init__(self, read_log: ReadLog, settings: HASettings, now_ms: int) -> None:
        super().__init__(read_log, settings, now_ms)
        self._reports = ReportReader()

    def receive(self, data: bytes, log_start: int, log_end: int, now_ms: int) -> bool:
        """See `MasterLink`."""
        offset = self._reports.feed(data)
        return offset is not None and self.take_report(offset, log_start, log_end, now_ms)

    def _frame(self, data: bytes) -> bytes:
        return TRANSFER_HEADER.pack(self.next_offset, len(data)) + data


class ClassicSlaveLink(SlaveLink):
    """A slave's end of a link. Its first report says where the master is to start
    (docs/formats/ha.md)."""

    def __init__(self, log_end: int, settings: HASettings, now_ms: int) -> None:
        super().__init__(log_end, settings, now_ms)
        self.reported = log_end
        self._transfers = TransferReader()

    def opening(self) -> bytes:
        """See `SlaveLink`."""
        return self._report()

    def receive(self, data: bytes, now_ms: int) -> list[Transfer]:
        """Returns the log bytes to append, in order; see `SlaveLink`."""
        self._read(len(data), now_ms)
        appends = []
        for transfer in self._transfers.feed(data):
            self._expect(transfer.offset, len(transfer.data))
            if transfer.data:
                appends.append(transfer)
        return appends

    def _report(self) -> bytes:
        return REPORT.pack(self.reported)


class Requirement(NamedTuple):
    """`replicas` copies are wanted (the master's own counts); `available` are in sync now."""

    replicas: int
    available: int

    @property
    def met(self) -> bool:
        return self.available >= self.replicas


def in_sync(slave_offsets: Iterable[int], log_end: int, max_gap: int) -> int:
    """Replicas, with the master, that are less than `max_gap` bytes behind `log_end`."""
    return 1 + len([at for at in slave_offsets if at >= 0 and log_end - at < max_gap])


def wanted_copies(
    available: int, *, in_sync_replicas: int, min_in_sync_replicas: int, automatic: bool
) -> int:
    """Returns how many copies the keys ask for with `available` replicas in sync.

    `automatic` (enableAutoInSyncReplicas) lowers the demand to what is there, never below
    `min_in_sync_replicas`.
    """
    if automatic:
        return max(min(in_sync_replicas, available), min_in_sync_replicas)
    return in_sync_replicas


def required(
    available: int, *, in_sync_replicas: int, min_in_sync_replicas: int, automatic: bool
) -> Requirement:
    """Returns what a send must wait for with `available` replicas in sync: as `wanted_copies`, but
    for a slave at least where `automatic` does not spare that."""
    wanted = wanted_copies(
        available,
        in_sync_replicas=max(in_sync_replicas, 2),
        min_in_sync_replicas=min_in_sync_replicas,
        automatic=automatic,
    )
    return Requirement(wanted, available)


class ClassicHAService(HAService[ClassicMasterLink]):
    """Slaves count while they are near the log's end; they have no names."""

    def new_link(self) -> ClassicMasterLink:
        """See `HAService`."""
        return ClassicMasterLink(self._log.read, self._settings, self._now_ms())

    def refusal(self) -> str:
        """See `IReplicator`: as stock, where a slave may act for this broker."""
        settings = self._settings
        if not settings.refuses_too_few:
            return ""
        available = self._available()
        wanted = wanted_copies(
            available,
            in_sync_replicas=settings.in_sync_replicas,
            min_in_sync_replicas=settings.min_in_sync_replicas,
            automatic=settings.automatic,
        )
        if wanted <= available:
            return ""
        key = "minInSyncReplicas" if settings.automatic else "inSyncReplicas"
        return too_few(available, wanted, key)

    def _available(self) -> int:
        return in_sync(self._acknowledged(), self._log.end_offset, self._settings.max_gap)

    def _required(self) -> int | None:
        settings = self._settings
        requirement = required(
            self._available(),
            in_sync_replicas=settings.in_sync_replicas,
            min_in_sync_replicas=settings.min_in_sync_replicas,
            automatic=settings.automatic,
        )
        if requirement.replicas <= 1:
            return 1
        return requirement.replicas if requirement.met else None

    def _reached(self, replicas: int) -> int:
        offsets = sorted(self._acknowledged(), reverse=True)
        return offsets[replicas - 2] if replicas <= len(offsets) + 1 else -1

    def _is_in_sync(self, link: ClassicMasterLink) -> bool:
        return (
            link.counts
            and in_sync([link.acknowledged], self._log.end_offset, self._settings.max_gap) > 1
        )

    def _acknowledged(self) -> list[int]:
        """Of each host as many as members are registered there, those that have most: a slave may
        have a former link too, which is not known to be dead yet."""
        offsets: dict[str, list[int]] = {}
        for slave in self.slaves:
            if slave.link.counts:
                offsets.setdefault(slave.host, []).append(slave.link.acknowledged)
        if self._members.is_known:
            for host, each in offsets.items():
                places = max(1, self._members.places(host))
                if len(each) > places:
                    offsets[host] = sorted(each)[-places:]
        return list(chain.from_iterable(offsets.values()))


#: Fires where this log may follow the master's; fails with a `LinkError` that says why not.
Agree = Callable[[], Deferred[None]]


class ClassicHAClient(HAClient[ClassicSlaveLink]):
    """A slave's client. Before each link it asks `agree` whether this log may follow that
    master's."""

    def __init__(
        self,
        log: IReplicatedLog,
        settings: HASettings,
        clock: IReactorTime,
        agree: Agree = lambda: succeed(None),
    ) -> None:
        super().__init__(log, settings, clock)
        self._agree = agree

    def open_link(self) -> Deferred[ClassicSlaveLink]:
        """See `HAClient`."""
        settled = self._agree().addCallback(lambda _: self._log_file.settled())
        return settled.addCallback(lambda end: ClassicSlaveLink(end, self._settings, self.now_ms()))

    def carry_out(self, link: ClassicSlaveLink, steps: Sequence[Transfer]) -> Deferred[int]:
        """See `HAClient`. What arrived together is appended and, where it must be, synced
        together."""
        data = b"".join(transfer.data for transfer in steps)
        return self._log_file.append(steps[0].offset, data)
