"""Both ends of an auto-switch link: what is said, copied, cut off and refused."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from zope.interface import implementer

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.replication.auto_switch.client import AutoSwitchHAClient
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFile
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable
from rocketmq_tw.replication.auto_switch.frames import (
    EpochTransfer,
    MasterHandshake,
    MasterReader,
    SlaveHandshake,
    SlaveReader,
    SlaveReport,
)
from rocketmq_tw.replication.auto_switch.interfaces import Comparison, ISwitchedLog
from rocketmq_tw.replication.auto_switch.kept_epochs import KeptEpochs
from rocketmq_tw.replication.auto_switch.service import AutoSwitchHAService
from rocketmq_tw.replication.auto_switch.sync_states import SyncMembers
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support import auto_switch_goldens as goldens

SETTINGS = HASettings(file_size=100, batch_size=64)


@implementer(ISwitchedLog)
class Log:
    start_offset = 0

    def __init__(self, size: int = 0) -> None:
        self.data = bytes(size)
        self.confirmed = 0

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
        return succeed(None)

    def truncate(self, end: int) -> Deferred[None]:
        self.data = self.data[:end]
        return succeed(None)

    def confirm(self, offset: int) -> None:
        self.confirmed = max(self.confirmed, offset)


class Transport(StringTransport):
    def setTcpNoDelay(self, enabled: bool) -> None:
        assert enabled

    def taken(self) -> bytes:
        data: bytes = self.value()
        self.clear()
        return data


def kept(*entries: tuple[int, int]) -> KeptEpochs:
    epochs = KeptEpochs(EpochFile(MemoryFiles(), "/epochs"), maybeDeferred)
    epochs.table = EpochTable(EpochEntry(*entry) for entry in entries)
    return epochs


def pairs(epochs: KeptEpochs) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in epochs.table.entries]


class Slave:
    """A slave with a log and epochs, on a link that has just opened."""

    def __init__(
        self,
        size: int,
        *entries: tuple[int, int],
        same: Any = None,
        confirmed: int = 0,
        all_ack: bool = False,
    ) -> None:
        self.log = Log(size)
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
        self.transport = Transport()
        self.connection = self.client.buildProtocol(None)
        self.connection.makeConnection(self.transport)
        assert SlaveReader().feed(self.transport.taken()) == [SlaveHandshake(2)]

    def compare(self, point: int) -> Deferred[Comparison]:
        self.compared.append(point)
        same = self.same(point) if callable(self.same) else self.same
        return succeed(Comparison(same is False, point if same else 0))

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
    return EpochTransfer(offset, data, EpochEntry(*epoch), confirmed)


class TestSlave:
    def test_copies_bytes_epochs_and_what_is_confirmed(self):
        slave = Slave(0)
        assert slave.meets(150, (1, 0), (2, 100)) == [SlaveReport(0)]
        answers = slave.gets(
            transfer(0, bytes(100), (1, 0), 40), transfer(100, bytes(50), (2, 100), 120)
        )
        assert answers[-1] == SlaveReport(150)
        assert pairs(slave.epochs) == [(1, 0), (2, 100)]
        assert slave.log.confirmed == 120

    def test_what_the_master_does_not_have_is_cut_off(self):
        slave = Slave(100, (1, 0), (2, 80))
        assert slave.meets(95, (1, 0), (3, 70)) == [SlaveReport(70)]
        assert len(slave.log.data) == 70
        assert pairs(slave.epochs) == [(1, 0)]

    @pytest.mark.parametrize("end, same", [(100, True), (250, lambda point: point <= 100)])
    def test_what_is_confirmed_is_not_cut_off_for_a_master_that_lacks_it(self, end, same):
        slave = Slave(200, (1, 0), same=same, confirmed=150, all_ack=True)
        assert slave.meets(end, (1, 0), (2, 100)) == []
        assert "confirmed up to 150" in slave.refused and "docs/controller.md" in slave.refused
        assert len(slave.log.data) == 200
        assert pairs(slave.epochs) == [(1, 0)]

    def test_what_both_have_stays_though_a_master_began_its_epoch_once_more(self):
        # As it does, ours and stock's, where it is started again and nobody else was elected.
        slave = Slave(150, (1, 0), (7, 100), same=lambda point: point <= 150)
        assert slave.meets(160, (1, 0), (7, 150)) == [SlaveReport(150)]
        assert slave.compared == [150]
        assert pairs(slave.epochs) == [(1, 0)]
        assert slave.gets(transfer(150, bytes(10), (7, 150)))[-1] == SlaveReport(160)
        assert pairs(slave.epochs) == [(1, 0), (7, 150)]

    def test_what_both_have_stays_though_the_master_lost_the_end_of_it(self):
        slave = Slave(150, (1, 0), (7, 100), same=lambda point: point <= 130)
        assert slave.meets(130, (1, 0), (7, 130)) == [SlaveReport(130)]
        assert pairs(slave.epochs) == [(1, 0)]

    def test_what_is_confirmed_comes_once_more_where_nothing_can_be_compared(self):
        slave = Slave(150, (1, 0), (7, 100), confirmed=150, all_ack=True)
        assert slave.meets(160, (1, 0), (7, 150)) == [SlaveReport(100)]

    def test_a_tail_that_nobody_confirmed_is_cut_off(self):
        slave = Slave(200, (1, 0), confirmed=100, all_ack=True)
        assert slave.meets(100, (1, 0), (2, 100)) == [SlaveReport(100)]

    @pytest.mark.parametrize(
        "end, master, same",
        [
            # It has lost its store, whatever it took since.
            (0, [(2, 0)], None),
            (300, [(2, 0)], lambda point: point <= 0),
            # Another group's.
            (100, [(1, 0)], lambda point: point <= 0),
            (300, [(1, 0)], lambda point: point <= 0),
        ],
    )
    def test_a_log_with_confirmed_messages_is_not_cut_off_as_a_whole(self, end, master, same):
        slave = Slave(200, (1, 0), same=same, confirmed=150)
        assert slave.meets(end, *master) == []
        assert "confirmed up to 150" in slave.refused and "docs/controller.md" in slave.refused
        assert len(slave.log.data) == 200
        assert pairs(slave.epochs) == [(1, 0)]

    @pytest.mark.parametrize("all_ack", [False, True])
    def test_a_whole_log_that_nobody_confirmed_is_cut_off(self, all_ack):
        slave = Slave(200, (1, 0), all_ack=all_ack)
        assert slave.meets(0, (2, 0)) == [SlaveReport(0)]
        assert not slave.log.data

    def test_without_all_ack_the_end_of_what_is_confirmed_may_go(self):
        slave = Slave(200, (1, 0), confirmed=150)
        assert slave.meets(100, (1, 0), (2, 100)) == [SlaveReport(100)]

    @pytest.mark.parametrize("master", [[(1, 0)], [(0, 0), (1, 100)]])
    def test_a_group_made_anew_takes_no_confirmed_message(self, master):
        slave = Slave(150, (1, 0), confirmed=150, all_ack=True)
        assert slave.meets(100, *master) == []
        assert slave.refused
        assert len(slave.log.data) == 150

    def test_a_group_made_anew_by_its_longest_log_comes_together(self):
        slave = Slave(100, (1, 0), confirmed=100, all_ack=True)
        assert slave.meets(150, (0, 0), (1, 150)) == [SlaveReport(100)]
        assert slave.compared == [100] and len(slave.log.data) == 100
        slave.gets(transfer(100, bytes(50), (0, 0)), transfer(150, b"x", (1, 150)))
        assert pairs(slave.epochs) == [(0, 0), (1, 150)]

    def test_a_group_made_anew_with_another_log_is_refused(self):
        slave = Slave(100, (1, 0), same=False)
        assert slave.meets(150, (0, 0), (1, 150)) == []
        assert "another message" in slave.refused
        assert pairs(slave.epochs) == [(1, 0)]

    def test_it_goes_back_to_an_epochs_start_where_its_bytes_are_other_ones(self):
        slave = Slave(100, (1, 0), (2, 80), same=lambda point: point <= 80)
        assert slave.meets(95, (1, 0), (2, 80)) == [SlaveReport(80)]
        assert slave.compared == [95, 80]

    def test_a_stock_masters_bytes(self):
        slave = Slave(0)
        for data in (
            goldens.HANDSHAKE,
            goldens.FIRST_TRANSFER,
            goldens.SECOND_TRANSFER,
            goldens.HEARTBEAT,
        ):
            slave.connection.dataReceived(data)
        assert slave.log.data == goldens.FIRST_TRANSFER[36:] + goldens.SECOND_TRANSFER[36:]
        assert pairs(slave.epochs) == [(1, 0), (5, 213)]
        assert slave.log.confirmed == 426
        assert SlaveReader().feed(slave.transport.taken()) == [
            SlaveReport(0),
            SlaveReport(213),
            SlaveReport(426),
        ]

    def test_stocks_name_for_an_epochs_last_bytes(self):
        slave = Slave(50, (1, 0))
        slave.meets(200, (1, 0), (2, 60), (3, 100))
        # All of epoch 2 comes under the name of 3.
        slave.gets(transfer(50, bytes(10), (2, 60)))
        slave.gets(transfer(60, bytes(40), (3, 100)))
        assert pairs(slave.epochs) == [(1, 0), (2, 60), (3, 100)]
        assert slave.gets(transfer(100, bytes(9), (3, 100))) == [SlaveReport(109)]

    def test_stocks_heartbeats(self):
        slave = Slave(0)
        slave.meets(0, (1, 0))
        assert slave.gets(transfer(-1, b"", (1, 0), -1)) == []
        slave.gets(transfer(0, bytes(10), (2, 0)))
        assert slave.gets(transfer(10, b"", (1, 0), 10)) == []
        assert not slave.refused
        assert slave.log.confirmed == 10

    @pytest.mark.parametrize(
        "end, entries, why",
        [
            (300, [(3, 250)], "none of this log's epochs"),
            (100, [(1, 0)], "no master any more"),
            (300, [], "no master any more"),
        ],
    )
    def test_a_master_with_another_log_is_refused_and_nothing_changes(self, end, entries, why):
        slave = Slave(200, (1, 0), (2, 150))
        assert slave.meets(end, *entries) == []
        assert why in slave.refused
        assert len(slave.log.data) == 200
        assert pairs(slave.epochs) == [(1, 0), (2, 150)]

    def test_a_log_that_differs_in_front_of_every_epoch_is_left_alone(self):
        slave = Slave(200, (1, 0), (2, 150), same=False)
        assert slave.meets(180, (1, 0), (2, 150)) == []
        assert "another message" in slave.refused
        assert len(slave.log.data) == 200

    @pytest.mark.parametrize(
        "frame, why",
        [
            (transfer(60, b"x", (1, 0)), "pushes offset 60"),
            (transfer(50, b"xy", (2, 51)), "as one epoch"),
            (transfer(50, b"x", (1, 10)), "epoch"),
            (MasterHandshake(50, EpochTable()), "in the midst"),
        ],
    )
    def test_what_no_master_says_ends_the_link(self, frame, why):
        slave = Slave(50, (1, 0))
        slave.meets(50, (1, 0))
        slave.gets(frame)
        assert why in slave.refused
        assert len(slave.log.data) == 50

    def test_a_master_that_does_not_answer_holds_no_change_of_role(self):
        slave = Slave(50, (1, 0))
        slave.client._compare = lambda point: Deferred()
        slave.meets(40, (1, 0))
        stopped = []
        slave.client.stop().addCallback(stopped.append)
        slave.connection.connectionLost()
        assert stopped == [None]
        assert len(slave.log.data) == 50

    def test_nothing_is_appended_before_the_logs_agree(self):
        slave = Slave(50, (1, 0))
        slave.gets(transfer(50, b"x", (1, 0)))
        assert "before it was told" in slave.refused


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
            own_id=1,
            applied=SyncMembers(frozenset(members or {1}), 1),
            confirmed=0,
            propose=self.propose,
            renounce=self.renounce,
        )

    def propose(self, members: frozenset[int]) -> Deferred[SyncMembers]:
        self.asked.append(members)
        return succeed(SyncMembers(members, len(self.asked) + 1))

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
    return MasterReader().feed(transport.taken())


class TestMaster:
    def test_tells_its_epochs_then_streams_frames_of_one_epoch_each(self):
        connection, transport = Master().link()
        connection.dataReceived(SlaveHandshake(2).encode())
        (answer,) = frames(transport)
        assert (answer.end, [tuple(entry) for entry in answer.epochs.entries]) == (
            250,
            [(1, 0), (2, 130)],
        )
        connection.dataReceived(SlaveReport(90).encode())
        sent = frames(transport)
        assert [(frame.offset, len(frame.data), frame.epoch.epoch) for frame in sent] == [
            (90, 10, 1),
            (100, 30, 1),
            (130, 64, 2),
            (194, 6, 2),
            (200, 50, 2),
        ]

    @pytest.mark.parametrize("from_last, start", [(False, 0), (True, 200)])
    def test_where_an_empty_slave_starts(self, from_last, start):
        connection, transport = Master().link()
        connection.dataReceived(SlaveHandshake(2, from_last_file=from_last).encode())
        frames(transport)
        connection.dataReceived(SlaveReport(0).encode())
        assert frames(transport)[0].offset == start

    def test_a_slave_is_told_soon_what_is_confirmed(self):
        master = Master(1, 2)
        master.service.doStart()
        connection, transport = master.link()
        connection.dataReceived(SlaveHandshake(2).encode())
        connection.dataReceived(SlaveReport(200).encode())
        frames(transport)
        connection.dataReceived(SlaveReport(250).encode())
        master.clock.advance(0.1)
        (beat,) = frames(transport)
        assert (beat.data, beat.confirmed) == (b"", 250)
        master.clock.advance(0.1)
        assert frames(transport) == []

    @pytest.mark.parametrize(
        "data",
        [
            SlaveReport(0).encode(),
            SlaveHandshake(1).encode(),
            SlaveHandshake(2).encode() + SlaveReport(251).encode(),
            SlaveHandshake(2).encode() + SlaveReport(9).encode() + SlaveHandshake(2).encode(),
            SlaveHandshake(2).encode() + SlaveHandshake(3).encode(),
            bytes(4),
        ],
    )
    def test_what_no_slave_says_ends_the_link(self, data):
        connection, transport = Master().link()
        connection.dataReceived(data)
        assert transport.disconnecting

    def test_a_slave_that_is_back_takes_the_place_of_its_old_link(self):
        master = Master(1, 2)
        first, former = master.link()
        first.dataReceived(SlaveHandshake(2).encode())
        second, transport = master.link()
        second.dataReceived(SlaveHandshake(2).encode())
        assert former.disconnecting and not transport.disconnecting
        first.connectionLost()
        assert master.asked == [], "it is not gone"

    def test_all_in_sync_are_waited_for_and_no_learner(self):
        master = Master(1, 2, all_ack=True)
        codes: list[int] = []
        learner, _ = master.link()
        learner.dataReceived(SlaveHandshake(3, is_learner=True).encode())
        learner.dataReceived(SlaveReport(250).encode())
        member, _ = master.link()
        member.dataReceived(SlaveHandshake(2).encode())
        member.dataReceived(SlaveReport(240).encode())
        master.service.wait(250).addCallback(codes.append)
        assert codes == []
        member.dataReceived(SlaveReport(250).encode())
        assert codes == [ResponseCode.SUCCESS]
        assert master.asked == []


def test_a_stranger_keeps_no_slave_out_of_the_set():
    master = Master(all_ack=True)
    taken: list[frozenset[int]] = []

    def propose(members: frozenset[int]) -> Deferred[SyncMembers]:
        if 999 in members:
            return fail(RequestError(ResponseCode.CONTROLLER_INVALID_REPLICAS, "no replica 999"))
        taken.append(members)
        return succeed(SyncMembers(members, len(taken) + 1))

    master.service._propose = propose
    for broker_id in (999, 2):
        connection, _ = master.link()
        connection.dataReceived(SlaveHandshake(broker_id).encode())
        connection.dataReceived(SlaveReport(250).encode())
    assert taken == [{1, 2}]
    assert master.service.states.waited_for == {2}
