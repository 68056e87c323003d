"""A member's files: their bytes, and what recovery makes of every kind of damage."""

from collections.abc import Iterator
from contextlib import suppress
from errno import EDQUOT, EIO, EMFILE, ENFILE, ENOSPC

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.raft.core.entry import Entry, place
from rocketmq_tw.raft.core.log import LogBase, LogWrites
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.raft_core import Ready
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.store.format import decode_entry, encode_header, encode_index
from rocketmq_tw.raft.store.ledger import UnsyncedError
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.structs import replace
from tests.support.raft_store import entries_of_terms

FILE_SIZE = 512
INDEX_SIZE = 32 * 8
DATA = "/s/data/00000000000000000000"


def store_in(files: MemoryFiles | FaultyFiles) -> MemberStore:
    return MemberStore(files, "/s", FILE_SIZE, INDEX_SIZE)


def ready(
    entries: list[Entry] | None = None,
    *,
    truncate_after: int | None = None,
    reset: LogBase | None = None,
    hard: HardState | None = None,
    snapshot: Snapshot | None = None,
) -> Ready:
    writes = LogWrites(reset, truncate_after, entries or [])
    return Ready(hard, snapshot, writes, [], [], [], [], [], [])


def filled(files: MemoryFiles, count: int = 20) -> list[Entry]:
    entries = entries_of_terms([1 + index // 7 for index in range(count)], FILE_SIZE)
    store = store_in(files)
    store.store(ready(entries, hard=HardState(1, "n0")))
    store.close()
    return entries


def read_all(store: MemberStore) -> list[Entry]:
    if store.begin_index < 0:
        return []
    return [store.read(index) for index in range(store.begin_index, store.end_index + 1)]


def test_the_bytes_of_an_entry_and_its_index_unit() -> None:
    entry = Entry(3, 2, 0x51, b"hi", chain_crc=0x0A0B0C0D, body_crc=0x01020304)
    header = bytes.fromhex(
        "00000001 00000032 0000000000000003 0000000000000002 0000000000000051"
        "00000000 0a0b0c0d 01020304 00000002"
    )
    assert encode_header(entry) == header
    assert decode_entry(header + b"hi") == entry
    assert encode_index(entry) == bytes.fromhex(
        "00000001 0000000000000051 00000032 0000000000000003 0000000000000002"
    )


def test_an_entry_never_crosses_a_file() -> None:
    assert place(0, 100, 512) == 0
    # 8 bytes stay for the BLANK that closes a file.
    assert place(400, 104, 512) == 400
    assert place(400, 105, 512) == 512
    assert place(512, 100, 512) == 512


def test_what_was_stored_is_there_again() -> None:
    files = MemoryFiles()
    entries = filled(files)
    assert len(files.list("/s/data")) > 2
    assert len(files.list("/s/index")) > 2
    store = store_in(files.crash())
    assert read_all(store) == entries
    assert [store.term(entry.index) for entry in entries] == [entry.term for entry in entries]
    assert store.hard_state == HardState(1, "n0")


def test_a_directory_that_a_killed_process_made_outlives_a_power_loss() -> None:
    files = MemoryFiles()
    files.make_dirs("/s", durable=False)
    entries = filled(files)
    assert read_all(store_in(files.crash())) == entries


def test_nothing_is_stored_in_a_directory_that_was_moved() -> None:
    files = MemoryFiles()
    store = store_in(files)
    entries = entries_of_terms([1, 1], FILE_SIZE)
    store.store(ready(entries[:1], hard=HardState(1, "n0")))
    files.rename("/s", "/moved")
    with pytest.raises(StoreError, match=r"^/s was removed, moved"):
        store.store(ready(entries[1:], hard=HardState(2, "n1")))
    assert not files.exists("/s/currterm")
    files.rename("/moved", "/s")
    store.store(ready(entries[1:], hard=HardState(2, "n1")))
    store.close()
    again = store_in(files)
    assert (read_all(again), again.hard_state) == (entries, HardState(2, "n1"))


@pytest.mark.parametrize("name", ["data", "index"])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_nothing_is_stored_where_a_part_was_moved(name: str, is_replaced: bool) -> None:
    files = MemoryFiles()
    store = store_in(files)
    entries = entries_of_terms([1, 1], FILE_SIZE)
    store.store(ready(entries[:1], hard=HardState(1, "n0")))
    files.rename(f"/s/{name}", "/moved")
    if is_replaced:
        files.make_dirs(f"/s/{name}")
        (last,) = files.list("/moved")
        files.open(f"/s/{name}/{last}", create=True).pwrite(files.read(f"/moved/{last}"), 0)
    with pytest.raises(StoreError, match=f"^/s/{name} was removed, moved or replaced"):
        store.store(ready(entries[1:]))
    files.remove_tree(f"/s/{name}")
    files.rename("/moved", f"/s/{name}")
    store.store(ready(entries[1:]))
    store.close()
    assert read_all(store_in(files)) == entries


def test_files_have_stocks_names_lengths_and_blank() -> None:
    files = MemoryFiles()
    entries = filled(files)
    assert files.list("/s/data")[:2] == ["00000000000000000000", "00000000000000000512"]
    content = files.read(DATA)
    assert len(content) == FILE_SIZE
    first_of_next = next(entry for entry in entries if entry.pos == FILE_SIZE)
    end = entries[first_of_next.index - 1].end_pos
    assert content[end : end + 8] == b"\xff\xff\xff\xff" + (FILE_SIZE - end).to_bytes(4, "big")
    assert files.read("/s/currterm") == b"currTerm=1\nvoteLeader=n0\n"


def damage(files: MemoryFiles, pos: int, data: bytes) -> None:
    file = files.open(f"/s/data/{pos - pos % FILE_SIZE:020d}")
    file.pwrite(data, pos % FILE_SIZE)
    file.fsync()


TORN = {
    "body": lambda entry: (entry.end_pos - 1, b"\x00"),
    "length": lambda entry: (entry.pos + 44, b"\x00\x00\x00\x7f"),
    "magic": lambda entry: (entry.pos, b"\x00\x00\x00\x09"),
    "index": lambda entry: (entry.pos + 15, b"\x63"),
    "position": lambda entry: (entry.pos + 31, b"\x01"),
    "huge size": lambda entry: (entry.pos + 4, b"\x7f\xff\xff\xff"),
    "negative size": lambda entry: (entry.pos + 4, b"\xff\xff\xff\xff"),
    "chain": lambda entry: (entry.pos + 39, b"\x00"),
}


@pytest.mark.parametrize("kind", TORN)
def test_a_torn_tail_is_cut(kind: str) -> None:
    files = MemoryFiles()
    entries = filled(files)
    where, what = TORN[kind](entries[17])
    damage(files, where, what)
    store = store_in(files)
    assert read_all(store) == entries[:17]
    # What was cut reads as zeros, so it cannot come back behind new entries.
    assert not any(files.read(f"/s/data/{files.list('/s/data')[-1]}")[-64:])


def without_crc(terms: list[int], size: int) -> list[Entry]:
    """Entries as stock's leaders send them."""
    entries: list[Entry] = []
    end = 0
    for index, term in enumerate(terms):
        pos = place(end, 48 + size, 4096)
        entries.append(Entry(index, term, pos, bytes([65 + index]) * size))
        end = entries[-1].end_pos
    return entries


@pytest.mark.parametrize("size", [0, 1, 700])
def test_a_torn_entry_without_a_crc_is_none(size: int) -> None:
    """Its header may have reached the disk and its body not: nothing in it tells."""
    entries = without_crc([1, 1, 1, 2], size)
    outcomes = set()
    for seed in range(60):
        files = MemoryFiles()
        store = MemberStore(files, "/s", 4096, INDEX_SIZE)
        store.store(ready(entries[:2], hard=HardState(2, "n1")))
        disk = store._ledger._data
        disk.sync = lambda: (_ for _ in ()).throw(PowerLoss())  # type: ignore[method-assign]
        with pytest.raises(PowerLoss):
            store.store(ready(entries[2:]))
        after = MemberStore(files.crash(seed), "/s", 4096, INDEX_SIZE)
        found = read_all(after)
        assert found == entries[: len(found)] and len(found) >= 2
        outcomes.add(len(found))
    assert outcomes == {2}


def test_the_log_goes_on_behind_a_cut() -> None:
    files = MemoryFiles()
    entries = filled(files)
    store = store_in(files)
    store.store(ready(truncate_after=9))
    assert store.end_index == 9
    store.store(ready(entries[10:]))
    assert read_all(store_in(files.crash())) == entries


def test_missing_index_files_are_made_again() -> None:
    files = MemoryFiles()
    entries = filled(files)
    files.remove_tree("/s/index")
    store = store_in(files)
    assert read_all(store)[-3:] == entries[-3:]


def test_damage_before_the_committed_entries_is_not_cut_but_refused() -> None:
    files = MemoryFiles()
    entries = filled(files)
    store = store_in(files)
    store.write_checkpoint(19)
    store.close()
    damage(files, entries[18].end_pos - 1, b"\x00")
    with pytest.raises(StoreError, match=r"ends with entry 17, but 19 was committed.*from the"):
        store_in(files)


@pytest.mark.parametrize("where", [0, 44, 48])
def test_a_refused_store_is_left_as_it_is(where: int) -> None:
    """An operator who repairs it needs what is there."""
    files = MemoryFiles()
    entries = filled(files, 4)
    store = store_in(files)
    store.write_checkpoint(3)
    store.close()
    damage(files, entries[0].pos + where, b"\x07")
    before = files.read(DATA)
    for _ in range(2):
        with pytest.raises(StoreError, match="3 was committed"):
            store_in(files)
        assert files.list("/s/data") == ["00000000000000000000"] and files.read(DATA) == before


def test_a_snapshot_without_its_vote_is_refused() -> None:
    files = MemoryFiles()
    store = store_in(files)
    meta = SnapshotMeta(29, 5, 900, 3)
    store.store(ready(reset=meta.base, snapshot=Snapshot(meta, b"abc"), hard=HardState(5, "n1")))
    store.close()
    files.remove("/s/currterm")
    with pytest.raises(StoreError, match="vote may be forgotten"):
        store_in(files)


def test_a_damaged_entry_is_never_served() -> None:
    files = MemoryFiles()
    entries = filled(files)
    store = store_in(files)
    damage(files, entries[12].end_pos - 1, b"\x00")
    with pytest.raises(StoreError, match="entry 12"):
        store.read(12)


def test_a_forgotten_vote_is_refused() -> None:
    files = MemoryFiles()
    filled(files)
    files.remove("/s/currterm")
    with pytest.raises(StoreError, match="vote may be forgotten"):
        store_in(files)
    file = files.open("/s/currterm", create=True)
    file.pwrite(b"currTerm=many\n", 0)
    with pytest.raises(StoreError, match="currTerm='many' is no number"):
        store_in(files)


def test_another_file_size_is_refused() -> None:
    files = MemoryFiles()
    filled(files)
    with pytest.raises(
        StoreError, match="set mappedFileSizeForEntryData to what the store was written with"
    ):
        MemberStore(files, "/s", 2 * FILE_SIZE, INDEX_SIZE)


def test_two_processes_cannot_open_one_store() -> None:
    files = MemoryFiles()
    filled(files)
    store = store_in(files)
    with pytest.raises(BlockingIOError):
        store_in(files)
    store.close()


def test_a_snapshot_drops_the_files_that_it_covers() -> None:
    files = MemoryFiles()
    entries = filled(files)
    store = store_in(files)
    meta = SnapshotMeta(15, entries[15].term, entries[15].end_pos, 4)
    store.save_snapshot(Snapshot(meta, b"four"))
    assert read_all(store) == entries and store.snapshot is None
    store.use_snapshot()
    store.drop_covered()
    assert files.list("/s/data")[0] != "00000000000000000000"
    assert 0 < store.begin_index <= 16
    begin = store.begin_index
    store.close()
    again = store_in(files.crash())
    assert again.begin_index == begin
    assert read_all(again) == entries[begin:]
    assert again.snapshot == meta and again.read_snapshot(1, 2) == b"ou"
    assert again.commit_index == 15


def test_an_installed_snapshot_starts_the_log_inside_a_file() -> None:
    files = MemoryFiles()
    entries = filled(files)
    store = store_in(files)
    base = LogBase(29, 5, 900)
    meta = SnapshotMeta(29, 5, 900, 3)
    store.store(ready(reset=base, snapshot=Snapshot(meta, b"abc")))
    assert store.begin_index == -1
    more = [Entry(30, 5, 900, b"x"), Entry(31, 5, 949, b"y")]
    store.store(ready(more))
    assert read_all(store_in(files.crash())) == more
    assert entries[0] not in more


def work(store: MemberStore, entries: list[Entry]) -> None:
    """Entries up to 24, of which those from 10 on take the place of others."""
    store.store(ready(entries[:10], hard=HardState(1, "n0")))
    store.write_checkpoint(5)
    others = entries_of_terms([1] * 20, FILE_SIZE)
    store.store(ready(others[10:]))
    store.write_checkpoint(9)
    store.store(ready(truncate_after=9))
    store.store(ready(entries[10:18], hard=HardState(2, "n0")))
    store.write_checkpoint(17)
    store.store(ready(entries[18:25]))


@pytest.mark.parametrize("body_crc", [True, False], ids=["with CRC", "as stock's leaders"])
def test_what_a_start_reads_outlives_a_power_loss_also_behind_a_failed_sync(body_crc: bool) -> None:
    """The pages of a sync that failed are read by the next process, which would count them."""
    entries = entries_of_terms([1] * 10 + [2] * 20, FILE_SIZE)
    if not body_crc:
        entries = [replace(one, body_crc=0, chain_crc=0) for one in entries]
    skip = 0
    while True:
        files = MemoryFiles()
        disk = FaultyFiles(files)
        store = store_in(disk)
        fault = Fault("fsync", skip=skip, times=1)
        disk.faults.append(fault)
        with suppress(OSError, StoreError):
            work(store, entries)
        if not fault.hits:
            assert skip > 20
            break
        files = files.kill()
        store = store_in(files)
        found = read_all(store)
        same = next((at for at, one in enumerate(found) if one != entries[at]), len(found))
        cut = None if same == len(found) else same - 1
        store.store(ready(entries[same:], truncate_after=cut, hard=HardState(3, "n0")))
        assert read_all(store_in(files.kill())) == entries
        assert read_all(store_in(files.crash())) == entries
        skip += 1


def test_a_start_behind_a_proper_end_writes_no_entry_again() -> None:
    files = MemoryFiles()
    entries = filled(files)
    store = store_in(files)
    store.write_checkpoint(19)
    store.close()
    disk = FaultyFiles(files)
    assert read_all(store_in(disk)) == entries
    assert not [path for operation, path in disk.asked if operation == "pwrite"]


@pytest.mark.parametrize("operation", ["sync_dir", "remove", "create", "rename"])
def test_a_member_whose_log_could_not_begin_anew_starts_again(operation: str) -> None:
    """At its end it must not say that entries were committed which it has removed."""
    skip = 0
    while True:
        files = MemoryFiles()
        entries = filled(files)
        disk = FaultyFiles(files)
        store = store_in(disk)
        store.write_checkpoint(19)
        fault = Fault(operation, skip=skip, times=1)
        disk.faults.append(fault)
        with suppress(OSError, StoreError):
            store.store(ready(reset=LogBase(49, -1, 8 * FILE_SIZE)))
        if not fault.hits:
            assert skip
            break
        store.write_checkpoint(19)
        store.close()
        for after in (files.kill(), files.crash()):
            found = read_all(store_in(after))
            assert found == entries[: len(found)]
        skip += 1


def test_a_member_that_is_killed_before_the_first_entry_of_its_new_log_starts_again() -> None:
    files = MemoryFiles()
    filled(files)
    store = store_in(files)
    store.write_checkpoint(19)
    store.store(ready(reset=LogBase(49, -1, 8 * FILE_SIZE)))
    store.write_checkpoint(49)
    assert read_all(store_in(files.kill())) == []


def operations(files: MemoryFiles) -> Iterator[Ready]:
    entries = entries_of_terms([1 + index // 7 for index in range(24)], FILE_SIZE)
    yield ready(entries[:6], hard=HardState(1, "n0"))
    yield ready(entries[6:18], hard=HardState(4, "n1"))
    yield ready(truncate_after=11)
    yield ready(entries[12:], hard=HardState(5, None))
    meta = SnapshotMeta(40, 5, 2000, 3)
    yield ready(reset=meta.base, snapshot=Snapshot(meta, b"abc"))
    yield ready([Entry(41, 5, 2048, b"z")], hard=HardState(6, "n2"))


NO_ROOM_AT = [
    (operation, error)
    for operation, errors in {
        "make_dirs": (ENOSPC, EDQUOT),
        "create": (ENOSPC, EDQUOT, EMFILE, ENFILE),
        "open": (EMFILE,),
        "pwrite": (ENOSPC, EDQUOT),
        "sync_dir": (EMFILE, ENFILE),
    }.items()
    for error in errors
]


@pytest.mark.parametrize(("operation", "error"), NO_ROOM_AT)
def test_what_found_no_room_is_stored_by_the_same_call_later(operation: str, error: int) -> None:
    skip, refused = 0, 0
    while True:
        files = MemoryFiles()
        disk = FaultyFiles(files)
        store = store_in(disk)
        fault = Fault(operation, error=error, skip=skip, times=2, kept=37)
        disk.faults.append(fault)
        done: list[Ready] = []
        for one in operations(files):
            for _ in range(3):
                try:
                    store.store(one)
                except OSError:
                    refused += 1
                    # The process may end at any time meanwhile.
                    check_promises(store_in(files.kill()), done)
                    store.write_checkpoint(0)
                else:
                    break
            done.append(one)
            check_promises(store_in(files.crash()), done)
            check_promises(store_in(files.kill()), done)
        disk.faults.clear()
        assert read_all(store)[-1].index == 41
        store.write_checkpoint(41)
        store.close()
        assert read_all(store_in(files.crash()))[-1].index == 41
        if not fault.hits:
            break
        skip += 1
    assert refused >= skip


@pytest.mark.parametrize("error", [ENOSPC, EDQUOT, EIO])
def test_a_sync_that_failed_is_not_done_again(error: int) -> None:
    """Its pages count as written now, whatever the reason was."""
    files = MemoryFiles()
    entries = filled(files)
    disk = FaultyFiles(files)
    store = store_in(disk)
    for path in ("/data/", "/index/"):
        disk.faults = [Fault("fsync", path, error=error, times=1)]
        with pytest.raises(UnsyncedError, match="cannot be synced"):
            store.store(ready(truncate_after=9))
    assert entries


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_power_lost_at_any_call_keeps_what_was_stored(seed: int | None) -> None:
    at = 1
    while True:
        files = MemoryFiles()
        disk = FaultyFiles(files)
        store = store_in(disk)
        disk.changes, disk.lose_power_at = 0, at
        done: list[Ready] = []
        try:
            for operation in operations(files):
                store.store(operation)
                done.append(operation)
            break
        except PowerLoss:
            after = store_in(files.crash(seed))
        check_promises(after, done)
        at += 1
    assert at > 30


def check_promises(store: MemberStore, done: list[Ready]) -> None:
    """Term and vote, and every entry that was stored and neither cut nor replaced."""
    hard = HardState()
    promised: dict[int, Entry] = {}
    for operation in done:
        hard = operation.hard_state or hard
        writes = operation.writes
        if writes.reset is not None:
            promised.clear()
        if writes.truncate_after is not None:
            promised = {index: e for index, e in promised.items() if index <= writes.truncate_after}
        promised.update({entry.index: entry for entry in writes.entries})
    assert store.hard_state.term >= hard.term
    if store.hard_state.term == hard.term:
        assert store.hard_state == hard
    # A cut, or the snapshot that came next, may have been carried out already.
    if store.snapshot is None:
        kept = [entry for entry in promised.values() if len(done) != 2 or entry.index <= 11]
        assert [store.read(entry.index) for entry in kept] == kept
