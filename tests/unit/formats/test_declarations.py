"""What the product writes is what `rocketmq_tw/formats` declares, and it reads what they build.

Records are compared in `tests/unit/message/test_record.py`.
"""

from typing import Any

import construct as c
import pytest

from rocketmq_tw.broker.timer.progress import TimerCheckpoint, decode_timer_checkpoint
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.formats import checkpoint, dledger, epochs, ha, index, queue, record, timer
from rocketmq_tw.formats.flat import flat
from rocketmq_tw.message.layout import FIXED, MIN_RECORD_SIZE
from rocketmq_tw.raft.core.entry import Entry, chain_crc, crc_of_body
from rocketmq_tw.raft.store import format as member_files
from rocketmq_tw.replication import classic
from rocketmq_tw.replication.auto_switch import frames
from rocketmq_tw.replication.auto_switch.epoch_file import decode_epochs, encode_epochs
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable
from rocketmq_tw.store.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from rocketmq_tw.store.index_file import INDEX_ENTRY, INDEX_HEADER
from rocketmq_tw.store.timer import unit as timer_unit
from rocketmq_tw.store.timer.wheel import Slot, TimerWheel
from tests.support.stores import ROOT, make_message, open_store, put


@pytest.mark.parametrize("flags", sorted(record.FIXED))
def test_the_fixed_part_of_a_record_is_unpacked_alike(flags: int) -> None:
    data = bytes(range(1, FIXED[flags].size + 1))
    declared = flat(record.FIXED[flags])
    assert declared.unpack(data) == FIXED[flags].unpack(data)
    fields = record.FIXED[flags].parse(data)
    assert declared.unpack(data) == tuple(value for name, value in fields.items() if name != "_io")
    assert record.MIN_SIZE == MIN_RECORD_SIZE


def test_a_field_without_a_size_of_its_own_is_not_flat() -> None:
    with pytest.raises(ValueError, match="body"):
        flat(c.Struct("body" / c.GreedyBytes))


def test_a_queue_and_its_extension_are_as_declared() -> None:
    files = MemoryFiles()
    store = open_store(files, enable_consume_queue_ext=True)
    messages = [make_message(tags="a") for _ in range(3)]
    places = put(store, *messages)
    store.close()
    units = c.Array(3, queue.UNIT).parse(files.read(f"{ROOT}/consumequeue/Topic/0/{0:020}"))
    assert [unit.position for unit in units] == places
    assert [unit.size for unit in units] == [message.store_size for message in messages]
    assert all(unit.tags_code < queue.ADDRESSES_END for unit in units)
    data = files.read(f"{ROOT}/consumequeue_ext/Topic/0/{0:020}")
    for unit, message in zip(units, messages, strict=True):
        extra = queue.EXTRA.parse(data[unit.tags_code - queue.FIRST_ADDRESS :])
        assert (extra.size, extra.tags_code, extra.bits) == (20, 97, b"")
        assert extra.store_timestamp == message.store_timestamp


def test_a_store_reads_queues_that_the_declarations_build() -> None:
    files = MemoryFiles()
    store = open_store(files)
    (place,) = put(store, message := make_message(tags="a"))
    store.close()
    path = f"{ROOT}/consumequeue/Topic/0/{0:020}"
    built = queue.UNIT.build({"position": place, "size": message.store_size, "tags_code": 5})
    with_built = files.open(path)
    with_built.pwrite(built, 0)
    with_built.close()
    again = open_store(files)
    (unit,) = again.queue_units("Topic", 0, 0, 1)
    assert (unit.position, unit.size, unit.tags_code) == (place, message.store_size, 5)
    again.close()


def test_an_index_file_is_as_declared() -> None:
    files = MemoryFiles()
    store = open_store(files)
    places = put(store, *(make_message(keys=f"k{number}") for number in range(3)))
    store.close()
    (name,) = files.list(f"{ROOT}/index")
    data = files.read(f"{ROOT}/index/{name}")
    header = index.HEADER.parse(data)
    assert (header.count, header.begin_offset, header.end_offset) == (4, places[0], places[-1])
    entries = [index.ENTRY.parse(data[index.entry_at(number, 16) :]) for number in (1, 2, 3)]
    assert [entry.physical_offset for entry in entries] == places
    slots = c.Array(16, index.SLOT).parse(data[index.HEADER.sizeof() :])
    assert slots[entries[2].key_hash % 16] == 3
    assert flat(index.HEADER).format == INDEX_HEADER.format
    assert flat(index.ENTRY).format == INDEX_ENTRY.format


def test_a_checkpoint_is_as_declared() -> None:
    content = Checkpoint(
        physic_msg_timestamp=1, logics_msg_timestamp=2, index_msg_timestamp=3,
        master_flushed_offset=4, confirm_phy_offset=5, safe_offset=6, queues=7, units=8,
        index_begin=9, index_entries=10, index_end=11,
    )  # fmt: skip
    data = encode_checkpoint(content)
    declared = checkpoint.CHECKPOINT.parse(data)
    assert declared.ours.crc == checkpoint.crc_of(data)
    assert (declared.stock.confirm_phy_offset, declared.ours.safe_offset) == (5, 6)
    assert (declared.ours.index_end, declared.ours.magic) == (11, checkpoint.MAGIC)
    assert checkpoint.CHECKPOINT.build(declared) == data
    declared.ours.units = 88
    declared.ours.crc = checkpoint.crc_of(checkpoint.CHECKPOINT.build(declared))
    read = decode_checkpoint(checkpoint.CHECKPOINT.build(declared))
    assert (read.units, read.safe_offset, read.physic_msg_timestamp) == (88, 6, 1)


def test_an_epoch_file_is_as_declared() -> None:
    table = EpochTable([EpochEntry(7, 7000), EpochEntry(8, 8000)])
    data = encode_epochs(table)
    declared = epochs.EPOCH_FILE.parse(data)
    assert [(each.epoch, each.start) for each in declared.epochs] == [(7, 7000), (8, 8000)]
    assert declared.crc == epochs.epochs_crc(data[declared.lines :])
    assert epochs.EPOCH_FILE.build(declared) == data
    assert decode_epochs(epochs.EPOCH_FILE.build(declared)).entries == table.entries


def test_an_entry_of_the_timer_log_is_as_declared() -> None:
    entry = timer_unit.TimerUnit(52, 3, 1_700_000_000_000, 1_700_000_005_000, 4096, 300, -7)
    declared = timer.LOG_ENTRY.parse(entry.encode())
    assert (declared.size, declared.previous, declared.magic) == (timer_unit.TIMER_UNIT_SIZE, 52, 3)
    assert (declared.wait_start, declared.wait_ms) == (1_700_000_000_000, 5000)
    assert (declared.physical_offset, declared.record_size) == (4096, 300)
    assert declared.topic_hash == -7
    assert timer_unit.decode_unit(timer.LOG_ENTRY.build(declared)) == entry
    blank = timer.LOG_BLANK.parse(timer_unit.blank(40))
    assert (blank.size, blank.magic) == (40, timer.LOG_BLANK_MAGIC)


def test_the_timers_progress_is_as_declared() -> None:
    data = TimerCheckpoint(1, 2, 3, 4, 5, 6, 7).encode()
    declared = timer.PROGRESS.parse(data)
    assert (declared.delivered_up_to, declared.log_end, declared.queue_offset) == (1, 2, 3)
    assert (declared.master_queue_offset, declared.version_counter) == (4, 7)
    assert decode_timer_checkpoint(timer.PROGRESS.build(declared)) == (1, 2, 3, 4, 5, 6, 7)


def test_a_wheels_slot_is_as_declared() -> None:
    files = MemoryFiles()
    wheel = TimerWheel(files, "/wheel", 1000, slots=16)
    wheel.load(0)
    wheel.put(21_000, Slot(52, 104, 2))
    wheel.write(wheel.take_dirty())
    wheel.close()
    data = files.read("/wheel")
    declared = timer.SLOT.parse(data[21 % 16 * timer.SLOT.sizeof() :])
    assert (declared.time, declared.first, declared.last, declared.number) == (21, 52, 104, 2)


def test_an_entry_of_a_dledger_member_is_as_declared() -> None:
    crc = crc_of_body(b"hello")
    entry = Entry(3, 2, 4096, b"hello", chain_crc(11, 3, 2, 4096, crc), crc)
    data = member_files.encode_header(entry) + entry.body
    declared = dledger.ENTRY.parse(data)
    assert (declared.size, declared.index, declared.term, declared.position) == (53, 3, 2, 4096)
    assert declared.body == b"hello"
    assert declared.chain_crc == dledger.chain_crc(11, 3, 2, 4096, declared.body_crc)
    assert member_files.decode_entry(dledger.ENTRY.build(declared)) == entry
    unit = dledger.INDEX_UNIT.parse(member_files.encode_index(entry))
    assert (unit.position, unit.size, unit.index, unit.term) == (4096, 53, 3, 2)
    assert dledger.BLANK.build({"magic": -1, "size": 9}) == member_files.BLANK.pack(-1, 9)


def test_frames_of_classic_ha_are_as_declared() -> None:
    data = ha.TRANSFER.build({"offset": 96, "data": b"abcd"})
    (transfer,) = classic.TransferReader().feed(data)
    assert (transfer.offset, transfer.data) == (96, b"abcd")
    assert classic.ReportReader().feed(ha.REPORT.build({"offset": 100})) == 100
    assert flat(ha.REPORT).format == classic.REPORT.format


_TABLE = EpochTable([EpochEntry(1, 0), EpochEntry(3, 4096)])


@pytest.mark.parametrize(
    ("declaration", "frame"),
    [
        (ha.SLAVE_HANDSHAKE, frames.SlaveHandshake(2, is_learner=True)),
        (ha.SLAVE_REPORT, frames.SlaveReport(8192)),
        (ha.MASTER_HANDSHAKE, frames.MasterHandshake(8192, _TABLE)),
        (ha.EPOCH_TRANSFER, frames.EpochTransfer(8192, b"data", EpochEntry(3, 4096), 8000)),
    ],
)
def test_frames_of_auto_switch_ha_are_as_declared(declaration: c.Struct, frame: Any) -> None:
    data = frame.encode()
    declared = declaration.parse(data)
    assert declaration.build(declared) == data
    is_slave = declaration in (ha.SLAVE_HANDSHAKE, ha.SLAVE_REPORT)
    reader: Any = frames.SlaveReader() if is_slave else frames.MasterReader()
    (read,) = reader.feed(declaration.build(declared))
    assert read.encode() == data
