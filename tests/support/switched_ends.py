"""Both ends of auto-switch links, each alone on a transport in memory."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from zope.interface import implementer

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.replication.auto_switch.client import AutoSwitchHAClient, RecordComparison
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFile, KeptEpochs
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable
from rocketmq_tw.replication.auto_switch.frames import (
    EpochTransfer,
    MasterHandshake,
    MasterReader,
    SlaveHandshake,
    SlaveReader,
)
from rocketmq_tw.replication.auto_switch.service import (
    AutoSwitchHAService,
    ControllerCalls,
    EpochBegin,
)
from rocketmq_tw.replication.interfaces import ISwitchedLog
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.wire.group_state import SyncStateSet

SETTINGS = HASettings(file_size=100, batch_size=64)


@implementer(ISwitchedLog)
class Log:
    """A log of zeros, or of what was appended."""

    start_offset = 0

    def __init__(self, size: int = 0, part: int = 0) -> None:
        self.data = bytes(size + part)
        self.confirmed = 0
        #: So many of its last bytes are a record that is not whole.
        self.part = part

    @property
    def end_offset(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : min(offset + size, offset - offset % 100 + 100)]

    @property
    def confirmed_offset(self) -> int:
        return self.confirmed

    def settled(self) -> Deferred[int]:
        return succeed(len(self.data))

    def append(self, offset: int, data: bytes) -> Deferred[int]:
        assert offset == len(self.data) or not self.data
        self.data += data
        return self.settled()

    def end_at_whole_record(self) -> Deferred[None]:
        part, self.part = self.part, 0
        return self.truncate(len(self.data) - part)

    def truncate(self, end: int) -> Deferred[None]:
        self.data = self.data[:end]
        return succeed(None)

    def confirm(self, offset: int) -> None:
        self.confirmed = max(self.confirmed, offset)


class Transport(StringTransport):
    """What one end has written."""

    def setTcpNoDelay(self, enabled: bool) -> None:
        assert enabled

    def taken(self) -> bytes:
        data: bytes = self.value()
        self.clear()
        return data


def kept(*entries: tuple[int, int]) -> KeptEpochs:
    """Epochs that a broker has."""
    epochs = KeptEpochs(EpochFile(MemoryFiles(), "/epochs"), maybeDeferred)
    epochs.table = EpochTable(EpochEntry(*entry) for entry in entries)
    return epochs


def pairs(epochs: KeptEpochs) -> list[tuple[int, int]]:
    """The epochs and their starts."""
    return [(entry.epoch, entry.start) for entry in epochs.table.entries]


class Slave:
    """A slave with a log and epochs, on a link that has just opened."""

    def __init__(
        self,
        size: int,
        *entries: tuple[int, int],
        same: Any = None,
        confirmed: int = 0,
        all_ack: bool = False,
        part: int = 0,
    ) -> None:
        self.log = Log(size, part)
        self.log.confirmed = confirmed
        self.epochs = kept(*entries)
        self.compared: list[int] = []
        self.client = AutoSwitchHAClient(
            self.log,
            attrs.evolve(SETTINGS, all_ack=all_ack),
            Clock(),
            epochs=self.epochs,
            handshake=SlaveHandshake(2),
            compare=self.compare,
        )
        self.same = same
        self.link()

    def link(self) -> None:
        """Opens a link in place of the one before."""
        if self.client.connection is not None:
            self.client.connection.connectionLost()
        self.transport = Transport()
        self.connection = self.client.buildProtocol(None)
        self.connection.makeConnection(self.transport)
        assert SlaveReader().feed(self.transport.taken()) == [SlaveHandshake(2)]

    def compare(self, point: int) -> Deferred[RecordComparison]:
        self.compared.append(point)
        same = self.same(point) if callable(self.same) else self.same
        return succeed(RecordComparison(same is False, point if same else 0))

    def meets(self, end: int, *entries: tuple[int, int]) -> list[Any]:
        """The master's handshake; returns what is answered."""
        table = EpochTable(EpochEntry(*entry) for entry in entries)
        return self.gets(MasterHandshake(end, table))

    def gets(self, *frames: Any) -> list[Any]:
        self.connection.dataReceived(b"".join(frame.encode() for frame in frames))
        return SlaveReader().feed(self.transport.taken())

    @property
    def refused(self) -> str:
        return self.client._noted if self.transport.disconnecting else ""


def transfer(offset: int, data: bytes, epoch: tuple[int, int], confirmed: int = 0) -> EpochTransfer:
    """A master's frame with log bytes."""
    return EpochTransfer(offset, data, EpochEntry(*epoch), confirmed)


class Master:
    """A master with a log of 250 bytes and two epochs; `link` opens links to it."""

    def __init__(self, *members: int, **settings: Any) -> None:
        self.log = Log(250)
        self.clock = Clock()
        self.asked: list[frozenset[int]] = []
        self.renounced = 0
        self.service = AutoSwitchHAService(
            self.log,
            HASettings(file_size=100, batch_size=64, **settings),
            self.clock,
            epochs=kept((1, 0), (2, 130)),
            begin=EpochBegin(1, SyncStateSet(frozenset(members or {1}), 1), 0),
            controller=ControllerCalls(
                propose=lambda wanted: self.propose(wanted),
                renounce=self.renounce,
                members=lambda: succeed(None),
            ),
        )

    def propose(self, members: frozenset[int]) -> Deferred[SyncStateSet]:
        self.asked.append(members)
        return succeed(SyncStateSet(members, len(self.asked) + 1))

    def renounce(self) -> Deferred[None]:
        self.renounced += 1
        return succeed(None)

    def link(self) -> tuple[Any, Transport]:
        transport = Transport()
        connection = self.service.buildProtocol(None)
        assert connection is not None
        connection.makeConnection(transport)
        return connection, transport


def frames(transport: Transport) -> list[Any]:
    """What a master has said since."""
    return MasterReader().feed(transport.taken())
