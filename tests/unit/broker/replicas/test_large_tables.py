"""Tables that fit no frame: slaves copy them in parts, others get what they always got."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from rocketmq_tw.broker.assignment.part import Assignment
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.net import whole_tables
from rocketmq_tw.net.whole_tables import KEPT_SECONDS, MOST_KEPT
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.queues import SetMessageRequestModeRequestBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.tables import TablePartRequestHeader
from tests.support.broker import BrokerInMemory, fired
from tests.support.master_and_slaves import MasterAndSlaves, Slave
from tests.support.network import FakePeer

PAIRS = 120_000
#: Bytes of a frame of the small groups here.
FRAME = 16_384


def large_group(monkeypatch: pytest.MonkeyPatch) -> tuple[MasterAndSlaves, Slave]:
    """A group whose master gives parts of 4 KiB."""
    monkeypatch.setattr(whole_tables, "PART_BYTES", 4096)
    group = MasterAndSlaves(net={"frame_max_length": FRAME})
    return group, group.add_slave()


def fill_topics(broker: BrokerInMemory) -> None:
    for number in range(400):
        broker.add_topic(f"Topic{number}")


def fill_groups(broker: BrokerInMemory) -> None:
    broker.groups.update(*(SubscriptionGroupConfig(group_name=f"G{n}") for n in range(400)))


def fill_offsets(broker: BrokerInMemory) -> None:
    for number in range(2_000):
        broker.offsets.commit(f"G{number}", "Topic", 0, number)


def fill_modes(broker: BrokerInMemory) -> None:
    for number in range(400):
        mode = SetMessageRequestModeRequestBody(
            topic="Topic", consumer_group=f"G{number}", mode="POP"
        )
        broker.broker[Assignment].modes.set(mode)


TABLES: list[tuple[RequestCode, Callable[[BrokerInMemory], None], Callable[[Any], Any]]] = [
    (RequestCode.GET_ALL_TOPIC_CONFIG, fill_topics, lambda broker: broker.topics.all()),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, fill_groups, lambda one: one.groups.all()),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, fill_offsets, lambda one: one.offsets.encode()),
    (
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        fill_modes,
        lambda broker: broker.broker[Assignment].modes.encoded()(),
    ),
]


@pytest.mark.parametrize(
    ("code", "fill", "table"), TABLES, ids=["topics", "groups", "offsets", "modes"]
)
def test_a_table_that_fits_no_frame_is_copied(
    code: RequestCode, fill: Any, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, slave = large_group(monkeypatch)
    fill(group.master.plane)
    group.settle()
    # As a slave of stock's asks for it.
    client = group.network.client("10.0.0.9")
    asking = client.request(group.master.plane.address, request(code), 5.0)
    group.settle()
    answer = fired(asking)
    assert answer.code == ResponseCode.SYSTEM_ERROR and "frameMaxLength" in str(answer.remark)
    slave.copy()
    assert table(slave.plane) == table(group.master.plane)
    assert not group.master.plane.broker[Tables].whole._kept


def test_all_of_120_000_offsets_are_copied_without_a_long_turn() -> None:
    group = MasterAndSlaves()
    slave = group.add_slave()
    master, copy = group.master.plane.offsets, slave.plane.offsets
    topic, group_name = "a-topic-with-a-long-name".ljust(80, "-"), "a-group-that-reads-it".ljust(40)
    for number in range(PAIRS):
        master.commit(f"{group_name}-{number}", f"{topic}-{number % 100}", 0, 10_000_000 + number)
    assert len(master.encode()) > 16 << 20
    turns: list[float] = []
    in_slices = slave.plane.broker[Replicas]._copied._in_slices

    def measured(steps: Any) -> Any:
        def each() -> Any:
            begin = process_time()
            for step in steps:
                turns.append(process_time() - begin)
                yield step
                begin = process_time()

        return in_slices(each())

    slave.plane.broker[Replicas]._copied._in_slices = measured
    done: list[Any] = []
    slave.part.copy().addBoth(done.append)
    for _ in range(100):
        group.settle()
        if done and copy.query(f"{group_name}-{PAIRS - 1}", f"{topic}-{(PAIRS - 1) % 100}", 0) > 0:
            break
    group.settle()
    assert done == [None]
    assert copy.encode() == master.encode(), "all, with the version"
    assert len(turns) > 200 and max(turns) < 0.5


def request(code: int, **part: Any) -> RemotingCommand:
    return RemotingCommand.request(code, TablePartRequestHeader(**part) if part else None)


def test_all_parts_are_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    group, _ = large_group(monkeypatch)
    master = group.master.plane
    fill_offsets(master)
    whole = master.offsets.encoder()()
    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    first = master.request(request(code, part_from=0))
    assert first is not None
    got, fields = first.body, first.ext_fields
    assert len(got) == 4096 and fields["wholeLength"] == str(len(whole))
    master.offsets.commit("another", "Topic", 0, 1)
    while len(got) < len(whole):
        answer = master.request(request(code, part_from=len(got), part_of=fields["partOf"]))
        assert answer is not None
        got += answer.body
    assert got == whole


def test_what_is_not_asked_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_tables, "PART_BYTES", 4096)
    master = BrokerInMemory()
    fill_offsets(master)
    kept, code = master.broker[Tables].whole._kept, RequestCode.GET_ALL_CONSUMER_OFFSET
    names = []
    for _ in range(MOST_KEPT + 1):
        answer = master.request(request(code, part_from=0))
        assert answer is not None
        names.append(answer.ext_fields["partOf"])
    assert list(kept) == names[1:]
    # The oldest gave way; what is asked for stays.
    gone = master.request(request(code, part_from=4096, part_of=names[0]))
    assert gone is not None and gone.code == ResponseCode.SYSTEM_ERROR
    assert "ask for the whole table again" in str(gone.remark)
    master.clock.advance(KEPT_SECONDS - 1)
    answer = master.request(request(code, part_from=4096, part_of=names[1]))
    assert answer is not None and answer.code == ResponseCode.SUCCESS
    master.clock.advance(2)
    assert list(kept) == names[1:2]
    master.clock.advance(KEPT_SECONDS)
    assert not kept


def test_tables_that_are_kept_have_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_tables, "PART_BYTES", 4096)
    master = BrokerInMemory()
    fill_offsets(master)
    size = len(master.offsets.encode())
    monkeypatch.setattr(whole_tables, "MOST_KEPT_BYTES", 2 * size + size // 2)
    for wanted in (1, 2, 2, 2):
        assert master.request(request(RequestCode.GET_ALL_CONSUMER_OFFSET, part_from=0))
        assert len(master.broker[Tables].whole._kept) == wanted


def test_nobody_keeps_a_slave_from_the_rest_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """By asking for the first parts of many, of which the oldest gave way."""
    monkeypatch.setattr(whole_tables, "PART_BYTES", 4096)
    master = BrokerInMemory()
    fill_offsets(master)
    slave, stranger = FakePeer("10.0.0.2:4"), FakePeer("10.66.0.1:4")
    whole, code = master.offsets.encoder()(), RequestCode.GET_ALL_CONSUMER_OFFSET
    first = master.request(request(code, part_from=0), slave)
    assert first is not None
    got, name = first.body, first.ext_fields["partOf"]
    while len(got) < len(whole):
        for _ in range(MOST_KEPT + 1):
            assert master.request(request(code, part_from=0), stranger)
        answer = master.request(request(code, part_from=len(got), part_of=name), slave)
        assert answer is not None and answer.code == ResponseCode.SUCCESS, answer
        got += answer.body
    assert got == whole


def test_a_small_table_comes_as_ever() -> None:
    group = MasterAndSlaves()
    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    plain = group.master.plane.request(request(code))
    told = group.master.plane.request(request(code, part_from=0))
    assert plain is not None and told is not None
    assert (told.body, told.ext_fields) == (plain.body, plain.ext_fields)
