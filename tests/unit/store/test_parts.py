"""The store's small formats: metadata files, checkpoint, index, retention, delay levels."""

import errno
import re
import resource
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.interface import DiskUsage
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.store import index as index_module
from rocketmq_tw.store.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from rocketmq_tw.store.dispatch_entries import (
    BatchEntry,
    DispatchEntry,
    property_value,
)
from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.store.index import MessageIndex, index_name
from rocketmq_tw.store.index_file import INDEX_ENTRY, INDEX_HEADER, SlotTable
from rocketmq_tw.store.key_hashes import key_hash, key_hashes, topic_key_hash
from rocketmq_tw.store.retention import (
    Pressure,
    Removal,
    bytes_beyond_limit,
    disk_pressure,
    files_to_remove,
)
from rocketmq_tw.store.table_files import read_table_file, write_table_file
from tests.support.stores import ManualClock, small_config

PATH = "/store/config/topics.json"


def decode(data: bytes) -> str:
    if not data.startswith(b"{"):
        raise ValueError("no JSON")
    return data.decode()


def test_a_table_file_keeps_the_former_content_beside_the_new() -> None:
    files = MemoryFiles()
    assert read_table_file(files, PATH, decode, print) is None
    for content in (b"{1", b"{2", b"{3"):
        write_table_file(files, PATH, content)
    assert (files.read(PATH), files.read(PATH + ".bak")) == (b"{3", b"{2")
    assert files.list("/store/config") == ["topics.json", "topics.json.bak"]
    write_table_file(files, PATH, b"{3")
    assert files.read(PATH + ".bak") == b"{2"


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(50), None])
def test_bak_stands_in_with_a_report(content: bytes | None) -> None:
    files = MemoryFiles()
    write_table_file(files, PATH, b"{old")
    write_table_file(files, PATH, b"{new")
    files.remove(PATH)
    if content is not None:
        files.open(PATH, create=True).pwrite(content, 0)
    reports: list[str] = []
    assert read_table_file(files, PATH, decode, reports.append) == "{old"
    assert len(reports) == 1 and ".bak" in reports[0]


def test_a_table_damaged_on_both_sides_is_an_error_not_an_empty_broker() -> None:
    files = MemoryFiles()
    files.make_dirs("/store/config")
    files.open(PATH, create=True).pwrite(b"x", 0)
    with pytest.raises(DamagedStoreError, match="damaged"):
        read_table_file(files, PATH, decode, print)


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        ([PATH], "json is empty, and there is no other copy: restore it, or remove it to begin"),
        ([PATH + ".bak"], ".bak is empty, and there is no other copy: restore it, or remove it"),
        ([PATH, PATH + ".bak"], ".bak is empty: restore one of them, or remove both to begin"),
    ],
)
def test_a_table_file_that_is_empty_says_what_to_do(names: list[str], advice: str) -> None:
    files = MemoryFiles()
    files.make_dirs("/store/config")
    for name in names:
        files.open(name, create=True).close()
    with pytest.raises(DamagedStoreError, match=re.escape(advice)):
        read_table_file(files, PATH, decode, print)


def test_a_table_file_is_whole_at_every_moment_of_a_power_loss() -> None:
    for moment in range(1, 40):
        memory = MemoryFiles()
        write_table_file(memory, PATH, b"{one")
        files = FaultyFiles(memory)
        files.lose_power_at = moment
        written = b"{one"
        try:
            for content in (b"{two", b"{three"):
                write_table_file(files, PATH, content)
                written = content
        except PowerLoss:
            pass
        for seed in (None, *range(20)):
            found = read_table_file(memory.crash(seed), PATH, decode, print)
            following = {b"{one": "{two", b"{two": "{three", b"{three": "{three"}[written]
            assert found in (written.decode(), following), (moment, seed)


checkpoints = st.builds(
    Checkpoint, **{name: st.integers(0, 2**62) for name in Checkpoint.__struct_fields__}
)


@given(checkpoints)
def test_checkpoint_there_and_back(checkpoint: Checkpoint) -> None:
    data = encode_checkpoint(checkpoint)
    assert len(data) == 4096
    assert decode_checkpoint(data) == checkpoint
    changed = bytearray(data)
    changed[7] ^= 1
    # Stock wrote its part since: ours does not hold any more.
    assert decode_checkpoint(bytes(changed)).safe_offset == -1


@given(st.text(max_size=60))
def test_key_hash_is_javas_without_its_sign(text: str) -> None:
    value = java_hash_code(text)
    assert key_hash(text) == (0 if value == -(2**31) else abs(value))


def test_key_hash_of_long_and_of_the_smallest() -> None:
    assert key_hash("x" * 3000) == abs(java_hash_code("x" * 3000))
    assert java_hash_code("polygenelubricants") == -(2**31)
    assert key_hash("polygenelubricants") == 0


def query(
    index: MessageIndex, topic: str, key: str, limit: int, begin: int, end: int
) -> tuple[list[int], int, int]:
    """What a search finds, and what the index has last."""
    found: list[int] = []
    for _ in index.search(topic, key, limit, begin, end, found):
        pass
    return found, index.end_timestamp, index.end_offset


def new_index(files: MemoryFiles, slots: int = 4, capacity: int = 10) -> MessageIndex:
    index = MessageIndex(files, "/index", slots, capacity, ManualClock())
    index.load((-1, 1), clean=True)
    return index


def indexed(keys: tuple[bytes, ...], physical_offset: int, timestamp: int) -> DispatchEntry:
    return DispatchEntry("T", 0, 0, physical_offset, 100, 0, timestamp, True, keys)


def test_index_bytes_are_stocks() -> None:
    files = MemoryFiles()
    index = new_index(files)
    index.add([indexed((b"a", b"b"), 100, 5_000), indexed((b"a",), 200, 8_500)])
    index.write_back()
    (name,) = files.list("/index")
    data = files.read(f"/index/{name}")
    assert len(data) == 40 + 4 * 4 + 10 * 20
    assert INDEX_HEADER.unpack_from(data) == (5_000, 8_500, 100, 200, 2, 4)
    first, second = key_hash("T#a"), key_hash("T#b")
    entries = [INDEX_ENTRY.unpack_from(data, 56 + number * 20) for number in (1, 2, 3)]
    assert entries == [(first, 100, 0, 0), (second, 100, 0, 0), (first, 200, 3, 1)]
    assert query(index, "T", "a", 9, 0, 10_000) == ([200, 100], 8_500, 200)
    assert query(index, "T", "a", 1, 0, 10_000)[0] == [200]
    assert query(index, "T", "a", 9, 0, 6_000)[0] == [100]
    assert query(index, "T", "c", 9, 0, 10_000)[0] == []


def test_index_rolls_and_collects() -> None:
    files = MemoryFiles()
    index = new_index(files)
    for number in range(40):
        index.add([indexed((b"k%d" % number,), number * 10, 1_000 * number)])
    assert query(index, "T", "k39", 9, 0, 1 << 62)[0] == [390]
    assert len(files.list("/index")) == 5
    for number in range(40):
        assert query(index, "T", f"k{number}", 9, 0, 1 << 62)[0] == [number * 10]
    assert index.remove_before(200) == 2
    assert list(index.cut(300))
    assert query(index, "T", "k30", 9, 0, 1 << 62)[0] == []
    assert query(index, "T", "k29", 9, 0, 1 << 62)[0] == [290]
    index.close()
    assert query(new_index(files), "T", "k25", 9, 0, 1 << 62)[0] == [250]


def test_index_slots_that_a_crash_left_behind_come_back_from_the_entries() -> None:
    files = MemoryFiles()
    index = new_index(files, slots=3000, capacity=4000)
    for number in range(1_000):
        index.add([indexed((b"k%d" % number,), number * 10, 1_000)])
        if number == 499:
            index.write_back()
            mark = index.mark
    index.write_pending()
    files = files.kill()
    found = MessageIndex(files, "/index", 3000, 4000, ManualClock())
    found.load(mark, clean=False)
    for number in range(1_000):
        assert number * 10 in query(found, "T", f"k{number}", 9, 0, 1 << 62)[0]


def test_the_slots_of_a_full_index_file_are_synced_with_the_next_checkpoint() -> None:
    """Also where a checkpoint that left them out has synced its entries."""
    index = new_index(MemoryFiles(), slots=16, capacity=40)
    for number in range(39):
        index.add([indexed((b"k%d" % number,), number * 10, 1_000)])
    index.write_back(slots=False)
    (full,) = index.unsynced.files
    index.unsynced.files.clear()
    assert index.mark == (-1, 1)
    index.add([indexed((b"k39",), 390, 1_000)])
    index.write_back()
    assert full in index.unsynced.files
    assert index.mark == (390, 2)


@given(st.lists(st.lists(st.integers(0, 2999), min_size=1), max_size=5), st.data())
def test_slots_kept_by_pages_are_those_of_the_file(
    changes: list[list[int]], data: st.DataObject
) -> None:
    files = MemoryFiles()
    file = files.open("/slots", create=True)
    table = SlotTable(file, 8, 3000)
    expected = dict.fromkeys(range(3000), 0)
    first = 1
    for slots in changes:
        before = dict(expected)
        former = []
        for number, slot in enumerate(slots, first):
            former.append(expected[slot])
            expected[slot] = number
        assert table.exchange(slots, first) == former
        if data.draw(st.booleans()):
            table.take_back(slots, former)
            expected = before
        else:
            first += len(slots)
        table.write()
    assert not table.write()
    assert list(SlotTable(file, 8, 3000).read_all()) == list(expected.values())
    assert [SlotTable(file, 8, 3000).peek(slot) for slot in (0, 1024, 2999)] == [
        expected[slot] for slot in (0, 1024, 2999)
    ]


def test_slots_that_are_released_give_their_memory_back_at_once() -> None:
    """Not with the next look for garbage."""
    files, count = MemoryFiles(), 1 << 24
    table = SlotTable(files.open("/slots", create=True), 0, count)
    before = _mapped_bytes()
    table.exchange([5, 7], 1)
    assert _mapped_bytes() >= before + 4 * count
    table.write()
    table.release()
    assert _mapped_bytes() < before + count
    assert [table.peek(slot) for slot in (5, 6, 7)] == [1, 0, 2]


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def test_a_slot_that_says_what_cannot_be_is_empty() -> None:
    files = MemoryFiles()
    files.open("/slots", create=True).pwrite(struct.pack(">iii", 9, -1, 2), 0)
    table = SlotTable(files.open("/slots"), 0, 3)
    assert table.exchange([0, 1, 2, 0], 5) == [0, 0, 2, 5]


def test_an_index_that_cannot_be_written_takes_the_keys_later() -> None:
    files = FaultyFiles(MemoryFiles())
    index = MessageIndex(files, "/index", 3, 1000, ManualClock())
    index.load((-1, 1), clean=True)
    index.add([DispatchEntry("T", 0, 0, 0, 91, 0, 1_000, True, (b"a",))])
    index.write_pending()
    index.add([DispatchEntry("T", 0, n, n * 100, 91, 0, 1_000, True, (b"%c" % n,)) for n in b"abc"])
    files.faults.append(Fault("pwrite", error=errno.ENOSPC, times=1))
    with pytest.raises(OSError, match="No space"):
        index.write_pending()
    files.faults.clear()
    assert query(index, "T", "a", 9, 0, 1 << 62)[0] == [9700, 0]
    assert query(index, "T", "c", 9, 0, 1 << 62)[0] == [9900]


def test_of_an_index_that_cannot_be_written_few_keys_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_BATCH", 4)
    monkeypatch.setattr(index_module, "_MOST_PENDING", 8)
    files = FaultyFiles(MemoryFiles())
    index = MessageIndex(files, "/index", 3, 1000, ManualClock())
    index.load((-1, 1), clean=True)
    files.faults.append(Fault("pwrite", error=errno.ENOSPC))
    index.add([DispatchEntry("T", 0, n, n * 100, 91, 0, 1_000, True, (b"k",)) for n in range(6)])
    more = [DispatchEntry("T", 0, n, n * 100, 91, 0, 1_000, True, (b"k",)) for n in range(6, 12)]
    with pytest.raises(OSError, match="No space"):
        index.add(more)
    files.faults.clear()
    assert query(index, "T", "k", 99, 0, 1 << 62)[0] == [500, 400, 300, 200, 100, 0]
    # They come once more, since their dispatch failed.
    index.add(more)
    assert query(index, "T", "k", 99, 0, 1 << 62)[0] == [n * 100 for n in range(12)][::-1]


def test_a_cut_drops_keys_that_are_not_written() -> None:
    files = FaultyFiles(MemoryFiles())
    index = MessageIndex(files, "/index", 3, 1000, ManualClock())
    index.load((-1, 1), clean=True)
    first = DispatchEntry("T", 0, 0, 100, 91, 0, 1_000, True, (b"a", b"b"))
    index.add([first, DispatchEntry("T", 0, 1, 200, 91, 0, 2_000, True, (b"b", b"c"))])
    files.faults.append(Fault("pwrite", error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        index.write_pending()
    files.faults.clear()
    index.add([DispatchEntry("T", 0, 2, 300, 91, 0, 3_000, True, (b"a",))])
    for _ in index.cut(200):
        pass
    index.add([DispatchEntry("T", 0, 1, 250, 91, 0, 4_000, True, (b"a",))])
    found = [query(index, "T", key, 9, 0, 1 << 62)[0] for key in ("a", "b", "c")]
    assert found == [[250, 100], [100], []]


def test_a_batch_is_indexed_as_its_messages_are() -> None:
    offsets = [100, 200, 300]
    keys = [b"a", b"b", b"a"]
    batch = BatchEntry("T", 0, 0, 100, 300, 1_000, offsets, [100] * 3, [0] * 3, keys, 3)
    for last in (0, 200):
        index = MessageIndex(MemoryFiles(), "/index", 3, 1000, ManualClock())
        index.load((-1, 1), clean=True)
        index.add([DispatchEntry("T", 0, 0, last, 91, 0, 1_000, True, (b"x",))])
        index.write_pending()
        index.add([batch])
        # Those in front of the last one are in the index already.
        for key, found in (("a", [300, 100]), ("b", [200])):
            expected = [offset for offset in found if offset >= last]
            assert query(index, "T", key, 9, 0, 1 << 62)[0] == expected


def test_messages_of_a_batch_are_indexed_with_all_their_keys() -> None:
    unique_ids = [b"7F0000010A2B0B1C2D3E00000001%04d" % number for number in range(3)]
    keys = [unique_ids[0], b"a", b"b", unique_ids[1], unique_ids[2], b"a"]
    batch = BatchEntry(
        "T",
        0,
        0,
        100,
        300,
        1_000,
        [100, 200, 300],
        [100] * 3,
        [0] * 3,
        keys,
        3,
        key_offsets=[100, 100, 100, 200, 300, 300],
    )
    for last in (0, 200):
        index = MessageIndex(MemoryFiles(), "/index", 3, 1000, ManualClock())
        index.load((-1, 1), clean=True)
        index.add([DispatchEntry("T", 0, 0, last, 91, 0, 1_000, True, (b"x",))])
        index.write_pending()
        index.add([batch])
        wanted = {"a": [300, 100], "b": [100]}
        wanted |= {key.decode(): [100 * number] for number, key in enumerate(unique_ids, 1)}
        for key, found in wanted.items():
            expected = [offset for offset in found if offset >= last]
            assert query(index, "T", key, 9, 0, 1 << 62)[0] == expected


def test_index_name_has_milliseconds() -> None:
    name = index_name(1_700_000_000_007)
    assert len(name) == 17 and name.endswith("007")


def test_one_property_of_many() -> None:
    properties = b"XTAGS\x01no\x02TAGS\x01yes\x02KEYS\x01last"
    assert property_value(properties, b"TAGS\x01") == b"yes"
    assert property_value(properties, b"KEYS\x01") == b"last"
    assert property_value(properties, b"XTAGS\x01") == b"no"
    assert property_value(properties, b"AGS\x01") == b""


@pytest.mark.parametrize(
    ("percent", "pressure"),
    [(75, "NONE"), (76, "RECLAIM"), (86, "FORCE"), (91, "FULL")],
)
def test_disk_pressure(percent: int, pressure: str) -> None:
    assert disk_pressure(small_config(), DiskUsage(100, percent)) is Pressure[pressure]


def test_a_full_disk_forces_files_out_in_portions() -> None:
    config = small_config(delete_file_batch_max=3)
    removal = files_to_remove(config, [1, 2, 3, 4, 5], Pressure.FORCE, 10, files_beyond_limit=9)
    assert removal == Removal(expired=0, forced=3)
    config = small_config(delete_file_batch_max=3, clean_file_forcibly_enable=False)
    removal = files_to_remove(config, [1, 2, 3, 4, 5], Pressure.FORCE, 10, files_beyond_limit=9)
    assert removal == Removal(0)


@pytest.mark.parametrize(
    ("beyond", "expected"),
    [(0, Removal(2, 0)), (1, Removal(2, 0)), (2, Removal(2, 0)), (4, Removal(2, 2))],
)
def test_no_more_is_forced_out_than_reaches_the_limit(beyond: int, expected: Removal) -> None:
    hour = 3_600_000
    now_ms = 100 * hour
    last_writes = [now_ms - hours * hour for hours in (80, 72, 71, 3, 2, 1)]
    removal = files_to_remove(
        small_config(), last_writes, Pressure.FORCE, now_ms, files_beyond_limit=beyond
    )
    assert removal == expected


def test_what_is_beyond_the_limit_has_to_go() -> None:
    assert bytes_beyond_limit(small_config(), DiskUsage(1_000, 910)) == 60


@given(st.text(max_size=20), st.text(max_size=40))
def test_a_hash_that_goes_on_from_its_topics_is_the_keys(topic: str, key: str) -> None:
    assert topic_key_hash(topic, key.encode()) == key_hash(f"{topic}#{key}")


_UNIQUE_IDS = st.tuples(
    st.sampled_from(["T", "Topic"]),
    st.sampled_from(["7F0000010A2B0B1C2D3E0000", "~" * 24]),
    st.sampled_from(["0001A2", "0001A3", "zzzzzz"]),
    st.text(st.characters(max_codepoint=127), min_size=2, max_size=2),
)
_ANY_KEYS = st.tuples(st.just("T"), st.text(max_size=32), st.just(""), st.just("é"))


_SHORT_KEYS = st.tuples(
    st.sampled_from(["T", "Topic"]), st.text(st.characters(max_codepoint=127), max_size=64)
)


@given(
    st.lists(_UNIQUE_IDS, max_size=12),
    st.lists(_SHORT_KEYS, max_size=12),
    st.lists(_ANY_KEYS, max_size=1),
)
def test_the_hashes_of_many_keys_are_those_of_each(
    ids: list[tuple[str, ...]], short: list[tuple[str, ...]], others: list[tuple[str, ...]]
) -> None:
    every = [(topic, "".join(parts)) for topic, *parts in (*ids, *short, *others)]
    for some in (every, every[::-1], every[: len(ids)], [("T", key) for _, key in every]):
        hashes = key_hashes([topic for topic, _ in some], [key.encode() for _, key in some])
        assert hashes == [key_hash(f"{topic}#{key}") for topic, key in some]


@pytest.mark.parametrize(
    "hashed", [0, 1, 0x7FFFF01F, 0x7FFFF020, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF]
)
def test_the_hashes_of_a_batch_near_the_largest_and_the_smallest_int(hashed: int) -> None:
    # Characters of a value below 31 are digits: seven of them bring the hash of `T#`, 30
    # characters and two characters 0 to any value.
    others = "7F0000010A2B0B1C2D3E000"
    wanted = hashed * pow(31 * 31, -1, 1 << 32)
    rest = (wanted - java_hash_code(f"T#{others}") * 31**7) % (1 << 32)
    start = others + "".join(chr(rest // 31**place % 31) for place in reversed(range(7)))
    assert java_hash_code(f"T#{start}\0\0") & 0xFFFFFFFF == hashed
    keys = [start + last_two for last_two in ("\0\0", "\0\1", "0F", "\x7f\x7f")]
    hashes = key_hashes(["T"] * len(keys), [key.encode() for key in keys])
    assert hashes == [key_hash(f"T#{key}") for key in keys]


@pytest.mark.parametrize("length", [1022, 1023, 1024, 1025, 3000])
def test_long_keys_hash_the_same_either_way(length: int) -> None:
    assert topic_key_hash("Topic", b"k" * length) == key_hash("Topic#" + "k" * length)
