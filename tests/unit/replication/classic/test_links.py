"""The classic HA links as values: what arrives, what is sent, what is refused."""

import pytest

from rocketmq_tw.replication.classic import (
    MAX_TRANSFER,
    REPORT,
    TRANSFER_HEADER,
    ClassicMasterLink,
    ClassicSlaveLink,
    ReportReader,
    Transfer,
    TransferReader,
    in_sync,
    required,
)
from rocketmq_tw.replication.links.ends import FlowMeter, LinkError
from rocketmq_tw.replication.links.group_transfer import GroupTransfer
from rocketmq_tw.replication.links.settings import HASettings

FILE_SIZE = 100
LOG = bytes(range(250))


def master_link(**changes):
    return ClassicMasterLink(
        lambda offset, size: LOG[offset : min(offset + size, offset - offset % 100 + 100)],
        HASettings(file_size=FILE_SIZE, batch_size=64, **changes),
        now_ms=0,
    )


def slave_link(log_end=0):
    return ClassicSlaveLink(log_end, HASettings(file_size=FILE_SIZE), now_ms=0)


def test_a_link_without_a_whole_report_is_no_slaves():
    link = master_link()
    for moment in range(0, 12_000, 3_000):
        assert not link.receive(b"\0"[: moment < 9_000], 0, len(LOG), moment)
    assert not link.expired(10_000)
    assert link.expired(10_001), "bytes that make no report are no sign of life"


def reporting(offset):
    link = master_link()
    link.receive(REPORT.pack(offset), 0, len(LOG), 0)
    return link


class TestFrames:
    def test_reports_byte_by_byte(self):
        reader = ReportReader()
        stream = REPORT.pack(7) + REPORT.pack(9)
        assert [reader.feed(stream[i : i + 1]) for i in range(16)] == [None] * 7 + [7] + [
            None
        ] * 7 + [9]

    def test_only_the_newest_of_several_reports_counts(self):
        assert ReportReader().feed(REPORT.pack(7) + REPORT.pack(9) + b"\0") == 9

    @pytest.mark.parametrize("step", [1, 5, 13, 64])
    def test_transfers_in_pieces(self, step):
        stream = TRANSFER_HEADER.pack(10, 3) + b"abc" + TRANSFER_HEADER.pack(13, 0)
        reader = TransferReader()
        found = [
            transfer
            for start in range(0, len(stream), step)
            for transfer in reader.feed(stream[start : start + step])
        ]
        assert found == [Transfer(10, b"abc"), Transfer(13, b"")]

    @pytest.mark.parametrize("header", [(0, -1), (0, MAX_TRANSFER + 1), (-1, 4)])
    def test_an_impossible_header_is_refused_before_its_body(self, header):
        with pytest.raises(LinkError):
            TransferReader().feed(TRANSFER_HEADER.pack(*header))


class TestMasterLink:
    def test_an_empty_slave_starts_at_the_last_file(self):
        assert reporting(0).next_offset == 200

    def test_a_slave_goes_on_where_it_ended(self):
        link = reporting(150)
        assert link.next_transfer(250, 0) == TRANSFER_HEADER.pack(150, 50) + LOG[150:200]
        assert link.next_transfer(250, 0) == TRANSFER_HEADER.pack(200, 50) + LOG[200:250]
        assert link.next_transfer(250, 0) is None

    def test_nothing_is_sent_before_the_first_report(self):
        link = master_link()
        assert link.next_transfer(250, 0) is None
        assert link.heartbeat(100_000) is None

    def test_a_batch_is_the_limit(self):
        assert len(reporting(100).next_transfer(250, 0)) == TRANSFER_HEADER.size + 64

    @pytest.mark.parametrize(
        "offset, start, why",
        [(251, 0, "ends at 250"), (-1, 0, "ends at 250"), (50, 100, "starts at 100")],
    )
    def test_a_slave_outside_of_the_log_is_refused(self, offset, start, why):
        with pytest.raises(LinkError, match=why):
            master_link().receive(REPORT.pack(offset), start, 250, 0)

    def test_an_acknowledgement_of_what_was_never_sent_is_refused(self):
        link = reporting(100)
        with pytest.raises(LinkError, match="100 was sent"):
            link.receive(REPORT.pack(101), 0, 250, 0)

    def test_an_acknowledgement_never_goes_back(self):
        link = reporting(100)
        with pytest.raises(LinkError, match="after 100"):
            link.receive(REPORT.pack(99), 0, 250, 0)

    def test_heartbeat_after_the_interval_without_a_transfer(self):
        link = reporting(250)
        assert link.heartbeat(0) == TRANSFER_HEADER.pack(250, 0), "the slave is accepted"
        assert link.heartbeat(4999) is None
        assert link.heartbeat(5000) == TRANSFER_HEADER.pack(250, 0)
        assert link.heartbeat(5001) is None

    def test_a_silent_slave_expires(self):
        link = reporting(250)
        assert not link.expired(20_000)
        assert link.expired(20_001)

    def test_the_flow_limit_holds_for_each_second(self):
        link = master_link(bytes_per_second=40)
        link.receive(REPORT.pack(100), 0, 250, 0)
        assert link.next_transfer(250, 0) == TRANSFER_HEADER.pack(100, 40) + LOG[100:140]
        assert link.next_transfer(250, 999) is None
        assert link.next_transfer(250, 1000)[:12] == TRANSFER_HEADER.pack(140, 40)


class TestSlaveLink:
    def test_appends_what_continues_the_log_and_reports_it(self):
        link = slave_link(10)
        assert link.opening() == REPORT.pack(10)
        assert link.receive(TRANSFER_HEADER.pack(10, 3) + b"abc", 1) == [Transfer(10, b"abc")]
        assert link.appended(13, 2) == REPORT.pack(13)
        assert link.appended(13, 3) is None

    @pytest.mark.parametrize("offset", [9, 11, 0])
    def test_any_other_offset_is_refused(self, offset):
        with pytest.raises(LinkError, match="this log ends at 10"):
            slave_link(10).receive(TRANSFER_HEADER.pack(offset, 1) + b"a", 1)

    def test_a_heartbeat_at_another_offset_is_refused_too(self):
        with pytest.raises(LinkError):
            slave_link(10).receive(TRANSFER_HEADER.pack(12, 0), 1)

    def test_an_empty_log_may_start_at_a_later_file(self):
        stream = TRANSFER_HEADER.pack(200, 1) + b"a" + TRANSFER_HEADER.pack(201, 1) + b"b"
        assert slave_link().receive(stream, 1) == [Transfer(200, b"a"), Transfer(201, b"b")]

    @pytest.mark.parametrize("size", [0, 1])
    def test_an_empty_log_starts_inside_no_file(self, size):
        with pytest.raises(LinkError, match="pushes offset 150, inside a file"):
            slave_link().receive(TRANSFER_HEADER.pack(150, size) + bytes(size), 1)

    def test_repeats_its_report_and_expires(self):
        link = slave_link(10)
        assert link.heartbeat(4999) is None
        assert link.heartbeat(5000) == REPORT.pack(10)
        assert not link.expired(20_000)
        assert link.expired(20_001)


class TestGroupTransfer:
    def test_each_waiter_gets_its_number_of_replicas(self):
        group = GroupTransfer()
        group.wait(100, 2, 10, "one slave")
        group.wait(100, 3, 10, "two slaves")
        group.wait(200, 2, 10, "later")
        assert group.acknowledged({2: 99, 3: 20}.__getitem__) == []
        assert group.acknowledged({2: 100, 3: 20}.__getitem__) == ["one slave"]
        assert group.acknowledged({2: 150, 3: 100}.__getitem__) == ["two slaves"]
        assert group.acknowledged(lambda replicas: -1) == []
        assert group.acknowledged({2: 200}.__getitem__) == ["later"]
        assert len(group) == 0

    def test_deadlines(self):
        group = GroupTransfer()
        group.wait(100, 2, 10, "a")
        group.wait(200, 2, 20, "b")
        assert group.expired(9) == []
        assert group.expired(10) == ["a"]
        assert group.drain() == ["b"]


class TestInSync:
    def test_a_slave_far_behind_or_silent_does_not_count(self):
        assert in_sync([100, 41, 40, -1], log_end=100, max_gap=60) == 3

    @pytest.mark.parametrize(
        "available, wanted, least, automatic, replicas",
        [
            (1, 1, 1, False, 2),
            (3, 3, 1, False, 3),
            (2, 3, 1, True, 2),
            (1, 3, 1, True, 1),
            (1, 3, 2, True, 2),
        ],
    )
    def test_required(self, available, wanted, least, automatic, replicas):
        requirement = required(
            available,
            in_sync_replicas=wanted,
            min_in_sync_replicas=least,
            automatic=automatic,
        )
        assert requirement.replicas == replicas
        assert requirement.met == (available >= replicas)


def test_flow_meter_tells_the_last_whole_second():
    meter = FlowMeter()
    meter.add(10, 500)
    meter.add(5, 900)
    assert meter.bytes_per_second(1000) == 15
    assert meter.bytes_per_second(2000) == 0
    assert meter.allowance(2000) is None
