"""The slave's end of an auto-switch link: what is said, copied, cut off and refused."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from rocketmq_tw.replication.auto_switch.client import RecordComparison
from rocketmq_tw.replication.auto_switch.epochs import EpochTable
from rocketmq_tw.replication.auto_switch.frames import (
    MasterHandshake,
    SlaveReader,
    SlaveReport,
)
from tests.support import auto_switch_goldens as goldens
from tests.support.switched_ends import (
    Slave,
    pairs,
    transfer,
)


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

    def test_a_part_of_a_record_is_cut_off_before_the_logs_are_compared(self):
        slave = Slave(90, (1, 0), part=10, same=True)
        assert slave.meets(150, (1, 0)) == [SlaveReport(90)]
        assert set(slave.compared) == {90}
        assert len(slave.log.data) == 90

    def test_what_the_master_does_not_have_is_cut_off(self):
        slave = Slave(100, (1, 0), (2, 80))
        assert slave.meets(95, (1, 0), (3, 70)) == [SlaveReport(70)]
        assert len(slave.log.data) == 70
        assert pairs(slave.epochs) == [(1, 0)]

    def test_a_crash_in_a_cut_leaves_no_log_that_is_longer_than_its_epochs_say(self):
        slave, seen = Slave(100, (1, 0), (2, 80)), []
        cut = slave.log.truncate

        def truncate(end):
            seen.append(pairs(slave.epochs))
            return cut(end)

        slave.log.truncate = truncate
        assert slave.meets(95, (1, 0), (3, 70)) == [SlaveReport(70)]
        assert seen == [[(1, 0), (2, 80)]]

    def test_epochs_of_bytes_that_are_gone_are_forgotten_when_a_link_opens(self):
        assert pairs(Slave(100, (1, 0), (2, 100)).epochs) == [(1, 0), (2, 100)]
        assert pairs(Slave(100, (1, 0), (2, 101)).epochs) == [(1, 0)]

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

    @pytest.mark.parametrize("empty", [(5, 100), (4, 100)])
    def test_an_epoch_without_a_byte_that_the_master_lacks_is_forgotten(self, empty):
        """This broker was elected and wrote nothing; the master goes on with the epoch before."""
        slave = Slave(100, (3, 0), empty, same=lambda point: point <= 100)
        assert slave.meets(200, (3, 0), (6, 180)) == [SlaveReport(100)]
        slave.gets(transfer(100, bytes(80), (3, 0)), transfer(180, bytes(20), (6, 180)))
        assert not slave.refused
        assert (pairs(slave.epochs), len(slave.log.data)) == ([(3, 0), (6, 180)], 200)

    def test_an_epoch_without_a_byte_stays_before_a_master_of_an_earlier_one(self):
        slave = Slave(100, (3, 0), (7, 100), same=lambda point: point <= 100)
        slave.meets(200, (3, 0), (6, 180))
        assert pairs(slave.epochs) == [(3, 0), (7, 100)]

    def test_an_epoch_without_a_byte_stays_where_the_master_has_it(self):
        slave = Slave(100, (3, 0), (5, 100), same=lambda point: point <= 100)
        written = slave.epochs._file.save = Mock()
        assert slave.meets(120, (3, 0), (5, 100)) == [SlaveReport(100)]
        assert pairs(slave.epochs) == [(3, 0), (5, 100)]
        assert not written.called

    def test_a_cut_whose_epochs_could_not_be_written_is_made_good_at_the_next_link(self):
        slave = Slave(150, (4, 0), (5, 100), same=lambda point: point <= 100)
        save, slave.epochs._file.save = (
            slave.epochs._file.save,
            Mock(side_effect=OSError(28, "full")),
        )
        assert slave.meets(200, (4, 0), (6, 180)) == []
        assert (pairs(slave.epochs), len(slave.log.data)) == ([(4, 0), (5, 100)], 100)
        slave.epochs._file.save = save
        slave.link()
        assert slave.meets(200, (4, 0), (6, 180)) == [SlaveReport(100)]
        slave.gets(transfer(100, bytes(80), (4, 0)), transfer(180, bytes(20), (6, 180)))
        assert (pairs(slave.epochs), len(slave.log.data)) == ([(4, 0), (6, 180)], 200)

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

    @pytest.mark.parametrize(
        ("question", "answer"), [(0, 0), (0, 150), (1, 0), (2, 0)], ids=lambda value: str(value)
    )
    def test_nothing_changes_for_a_master_that_is_gone(self, question, answer):
        """Its answer is on its way while the link ends: another one may be the master by now."""
        slave = Slave(150, (1, 0), (7, 100), confirmed=150, all_ack=True)
        late = Deferred()
        compare = slave.client._compare

        def asked(point):
            answered = compare(point)
            return late if len(slave.compared) == question + 1 else answered

        slave.client._compare = asked
        assert slave.meets(160, (1, 0), (7, 150)) == []
        assert len(slave.compared) == question + 1
        slave.connection.connectionLost(Failure(ConnectionDone()))
        late.callback(RecordComparison(differs=False, same_until=answer))
        assert len(slave.log.data) == 150
        assert pairs(slave.epochs) == [(1, 0), (7, 100)]

    def test_nothing_is_appended_before_the_logs_agree(self):
        slave = Slave(50, (1, 0))
        slave.gets(transfer(50, b"x", (1, 0)))
        assert "before it was told" in slave.refused
