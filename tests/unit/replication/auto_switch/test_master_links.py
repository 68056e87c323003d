"""The master's end of an auto-switch link: what is said, waited for and refused."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from rocketmq_tw.replication.auto_switch.frames import (
    SlaveHandshake,
    SlaveReport,
)
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import SyncStateSet
from tests.support.switched_ends import (
    Master,
    frames,
)


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

    def test_a_slave_that_is_silent_for_too_long_is_gone_from_the_set(self):
        master = Master(1, 2, housekeeping_ms=3000)
        master.service.doStart()
        connection, transport = master.link()
        connection.dataReceived(SlaveHandshake(2).encode() + SlaveReport(250).encode())
        master.clock.advance(3)
        assert not transport.disconnecting
        master.clock.advance(0.1)
        assert transport.disconnecting
        connection.connectionLost(None)
        assert master.asked == [{1}]

    def test_a_master_that_steps_down_proposes_nothing(self):
        master = Master(1, 2, all_ack=True)
        master.service.doStart()
        connection, _ = master.link()
        connection.dataReceived(SlaveHandshake(2).encode() + SlaveReport(100).encode())
        answers = []
        master.service.wait(250).addCallback(answers.append)
        stopped = master.service.stop()
        assert not stopped.called, "the slave lacks something"
        connection.connectionLost(None)
        master.clock.advance(5)
        assert stopped.called
        assert answers == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
        assert master.asked == [] and master.log.confirmed == 100

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

    def propose(members: frozenset[int]) -> Deferred[SyncStateSet]:
        if 999 in members:
            return fail(RequestError(ResponseCode.CONTROLLER_INVALID_REPLICAS, "no replica 999"))
        taken.append(members)
        return succeed(SyncStateSet(members, len(taken) + 1))

    master.propose = propose
    for broker_id in (999, 2):
        connection, _ = master.link()
        connection.dataReceived(SlaveHandshake(broker_id).encode())
        connection.dataReceived(SlaveReport(250).encode())
    assert taken == [{1, 2}]
    assert master.service.states.waited_for == {2}
