"""The examples of docs/formats are read by the declarations, and its tables agree with them."""

import re
from pathlib import Path

import construct as c
import pytest

from rocketmq_tw.formats import checkpoint, dledger, epochs, ha, index, queue, record, timer
from rocketmq_tw.store.checkpoint import decode_checkpoint
from rocketmq_tw.storecheck.records import key_hash

PAGES = Path(__file__).parents[3] / "docs" / "formats"


def text_of(page: str) -> str:
    return (PAGES / page).read_text()


def example(page: str, start: str) -> bytes:
    """The digits that begin with `start` in a page, up to the first word that is none."""
    found = re.search(rf"{start}(?:\s+[0-9A-Fa-f]+\b)*", text_of(page))
    assert found is not None, f"{page} has no example that starts with {start}"
    return bytes.fromhex("".join(found[0].split()))


def table(page: str, number: int) -> list[tuple[str, ...]]:
    """The rows of one of a page's tables whose first column says where fields stand."""
    blocks = re.findall(r"^\| (?:at|offset) \|.*\n\|[-:| ]+\n((?:\|.*\n)+)", text_of(page), re.M)
    rows = blocks[number].splitlines()
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]


def places(declaration: c.Struct, start: int = 0) -> list[tuple[int, int]]:
    """Where each field of a declaration stands, and its bytes."""
    found = []
    for field in declaration.subcons:
        found.append((start, field.sizeof()))
        start += field.sizeof()
    return found


def sizes(line: str) -> list[int]:
    """The bytes of fields that a page names as in "count (4)"."""
    return [int(size) for size in re.findall(r"\((\d+)\)", line)]


def test_a_record() -> None:
    read = record.RECORD.parse(example("commitlog.md", "00000065 daa320a7"))
    assert (read.topic, read.queue_id, read.queue_offset) == (b"T", 3, 7)
    assert (read.physical_offset, read.body, read.size) == (4096, b"hi", 101)
    assert read.properties == b"TAGS\x01a\x02"


def test_a_unit_of_a_queue() -> None:
    read = queue.UNIT.parse(example("consumequeue.md", "00000000 00001000 00000065"))
    assert (read.position, read.size, read.tags_code) == (4096, 101, 97)


def test_an_extra() -> None:
    read = queue.EXTRA.parse(example("consumequeue-ext.md", "0017 0000000000000061"))
    bits = [bit for bit in range(24) if read.bits[bit // 8] >> bit % 8 & 1]
    assert (read.size, read.tags_code, bits) == (23, 97, [0, 9, 16, 17, 23])


def test_an_entry_of_the_timer_log() -> None:
    read = timer.LOG_ENTRY.parse(example("timers.md", "00000034 0000000000000034"))
    assert (read.previous, read.wait_ms, read.physical_offset) == (52, 5000, 4096)
    assert (read.record_size, read.topic_hash) == (300, -7)


def test_an_entry_of_a_dledger_member_and_its_index_unit() -> None:
    data = example("dledger.md", "00000001 00000035 00000000")
    both = c.Struct("entry" / dledger.ENTRY, "unit" / dledger.INDEX_UNIT)
    read = both.parse(data)
    assert (read.entry.body, read.entry.size, read.entry.term) == (b"hello", 53, 1)
    entry = read.entry
    assert entry.chain_crc == dledger.chain_crc(0, 0, 1, 0, entry.body_crc)
    assert (read.unit.position, read.unit.size, read.unit.index) == (0, 53, 0)


def test_an_epoch_file() -> None:
    found = re.search(r"    2\n    (\d+)\n    7-7000\n    8-8000\n", text_of("auto-switch-ha.md"))
    assert found is not None
    data = found[0].replace("    ", "").encode()
    read = epochs.EPOCH_FILE.parse(data)
    assert [each.start for each in read.epochs] == [7000, 8000]
    assert read.crc == epochs.epochs_crc(data[read.lines :])


def test_frames_of_auto_switch_ha() -> None:
    page = "auto-switch-ha.md"
    handshake = ha.SLAVE_HANDSHAKE.parse(example(page, "00000001 0000 0000"))
    assert handshake.broker_id == 2
    report = ha.SLAVE_REPORT.parse(example(page, "00000002 0000000000002000`"[:-1]))
    assert report.offset == 8192
    transfer = ha.EPOCH_TRANSFER.parse(example(page, "00000002 00000004"))
    assert (transfer.epoch, transfer.epoch_start, transfer.confirmed) == (3, 4096, 8192)
    assert transfer.data == bytes.fromhex("DAA320A7")


def test_frames_of_classic_ha() -> None:
    first, answer, last = re.findall(r"`(0{14}[0-9A-F]{2}[0-9A-F ]*)`", text_of("ha.md"))
    assert ha.REPORT.parse(bytes.fromhex(first)).offset == 96
    transfer = ha.TRANSFER.parse(bytes.fromhex(answer))
    assert (transfer.offset, transfer.data) == (96, bytes.fromhex("DAA320A7"))
    assert ha.REPORT.parse(bytes.fromhex(last)).offset == 100


def test_an_index_file() -> None:
    slots = 4
    data = example("index.md", "0000000000001388 0000000000002134")
    header = index.HEADER.parse(data)
    assert (header.begin_timestamp, header.end_timestamp) == (5000, 8500)
    assert (header.begin_offset, header.end_offset) == (100, 200)
    assert (header.slots_in_use, header.count) == (1, 3)
    read = c.Array(slots, index.SLOT).parse(data[index.HEADER_SIZE :])
    assert list(read) == [2 if slot == key_hash("T", "a") % slots else 0 for slot in range(slots)]
    entries = [index.ENTRY.parse(data[index.entry_at(number, slots) :]) for number in (1, 2)]
    assert [entry.key_hash for entry in entries] == [key_hash("T", "a")] * 2
    assert [entry.physical_offset for entry in entries] == [100, 200]
    assert [(entry.seconds, entry.previous) for entry in entries] == [(0, 0), (3, 1)]
    assert len(data) == index.entry_at(header.count, slots)


def test_a_checkpoint() -> None:
    data = example("checkpoint.md", "0000018BCFE56800 0000018BCFE56800")
    data += bytes(checkpoint.FILE_SIZE - len(data))
    read = checkpoint.CHECKPOINT.parse(data)
    assert read.stock.index_msg_timestamp == 1_699_999_999_000
    assert read.stock.confirm_phy_offset == 8192
    assert (read.ours.magic, read.ours.crc) == (checkpoint.MAGIC, checkpoint.crc_of(data))
    assert (read.ours.safe_offset, read.ours.queues, read.ours.units) == (4096, 4, 40)
    assert (read.ours.index_begin, read.ours.index_entries, read.ours.index_end) == (100, 2, 3900)
    assert decode_checkpoint(data).safe_offset == 4096


def test_a_slot_of_the_timer_wheel() -> None:
    read = timer.SLOT.parse(example("timers.md", "000000006553F105 0000000000000034"))
    assert (read.time, read.first, read.last, read.number) == (1_700_000_005, 52, 104, 2)
    assert f"slot {read.time % timer.SLOTS}:" in text_of("timers.md")


def test_the_timers_progress() -> None:
    found = re.search(
        r"`([0-9A-F]{16})` and 16 zero bytes, then `([0-9A-F]{16})`", text_of("timers.md")
    )
    assert found is not None
    data = bytes.fromhex(found[1]) + bytes(16) + bytes.fromhex(found[2])
    read = timer.PROGRESS.parse(data.ljust(timer.PROGRESS.sizeof(), b"\0"))
    assert read.delivered_up_to == 1_700_000_000_000
    assert (read.log_end, read.queue_offset, read.master_queue_offset) == (0, 0, 9)


@pytest.mark.parametrize(
    ("page", "number", "fields"),
    [
        (
            "checkpoint.md",
            0,
            places(checkpoint.STOCK) + places(checkpoint.OURS, checkpoint.OURS_AT),
        ),
        ("dledger.md", 0, places(dledger.ENTRY_HEAD)),
        ("timers.md", 0, places(timer.LOG_ENTRY)),
        ("timers.md", 1, places(timer.SLOT)),
        # Up to the host, whose length is not fixed.
        ("commitlog.md", 0, places(record.FIXED[0])[:9]),
    ],
)
def test_fields_stand_where_the_pages_say(
    page: str, number: int, fields: list[tuple[int, int]]
) -> None:
    told = [
        (int(at), int(size))
        for places_told, size, *_ in table(page, number)
        for at in places_told.split(", ")
        if at.isdigit() and size.isdigit()
    ]
    assert told == fields


def test_the_timers_progress_stands_where_its_page_says() -> None:
    told = [int(at) for cells in table("timers.md", 2) for at in cells[0].split(", ")]
    assert told == [at for at, _ in places(timer.PROGRESS)]


def test_the_parts_of_an_index_file_have_the_bytes_that_its_page_says() -> None:
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", text_of("index.md"), re.M))
    header, entry = index.HEADER, index.ENTRY
    assert sizes(rows["header"]) == [size for _, size in places(header)]
    assert sizes(rows["entries"]) == [size for _, size in places(entry)]
    assert rows["header"].startswith(f"{header.sizeof()} |")
    assert rows["slots"].startswith(f"{index.SLOT.sizeof()} each |")
    assert rows["entries"].startswith(f"{entry.sizeof()} each |")
