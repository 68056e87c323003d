"""The examples of docs/formats are read by the declarations."""

import re
from pathlib import Path

import construct as c

from rocketmq_tw.formats import dledger, epochs, ha, queue, record, timer

PAGES = Path(__file__).parents[3] / "docs" / "formats"


def example(page: str, start: str) -> bytes:
    """The digits that begin with `start` in a page, up to the first character that is no part of
    such a run."""
    text = (PAGES / page).read_text()
    found = re.search(rf"{start}[0-9A-Fa-f\s]*", text)
    assert found is not None, f"{page} has no example that starts with {start}"
    return bytes.fromhex("".join(found[0].split()))


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
    text = (PAGES / "auto-switch-ha.md").read_text()
    found = re.search(r"    2\n    (\d+)\n    7-7000\n    8-8000\n", text)
    assert found is not None
    data = found[0].replace("    ", "").encode()
    read = epochs.EPOCH_FILE.parse(data)
    assert [each.start for each in read.epochs] == [7000, 8000]
    assert read.crc == epochs.crc_of(data[read.lines :])


def test_frames_of_auto_switch_ha() -> None:
    page = "auto-switch-ha.md"
    handshake = ha.SLAVE_HANDSHAKE.parse(example(page, "00000001 0000 0000"))
    assert handshake.broker_id == 2
    report = ha.SLAVE_REPORT.parse(example(page, "00000002 0000000000002000`"[:-1]))
    assert report.offset == 8192
    transfer = ha.EPOCH_TRANSFER.parse(example(page, "00000002 00000004"))
    assert (transfer.epoch, transfer.epoch_start, transfer.confirmed) == (3, 4096, 8192)
    assert transfer.data == bytes.fromhex("DAA320A7")
