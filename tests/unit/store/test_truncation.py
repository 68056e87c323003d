"""What stands behind a truncation never comes back, and what stands in front of it stays."""

import errno
from collections.abc import Iterator
from itertools import islice, pairwise

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store import cutting, index_file
from rocketmq_tw.store.checkpoint import read_checkpoint
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.index_file import IndexFile
from rocketmq_tw.store.message_store import MessageStore
from tests.support.masters_log import MastersLog
from tests.support.power import aftermaths
from tests.support.stores import (
    START_MS,
    ManualClock,
    by_key,
    cut,
    make_message,
    open_store,
    put,
    queues_of,
    read_all,
)


def bodies(store: MessageStore) -> list[bytes]:
    return [message.body for message in read_all(store)]


def numbered(first: int, count: int, *, size: int = 400) -> list[bytes]:
    return [b"%d " % number + bytes(size) for number in range(first, first + count)]


def fill(store: MessageStore, found: list[bytes]) -> list[int]:
    return put(store, *[make_message(body, keys=f"k{int(body.split()[0])}") for body in found])


def has_key(store: MessageStore, number: int) -> bool:
    return bool(by_key(store, "Topic", f"k{number}", 9, 0, 1 << 62))


def copy(store: MessageStore, first: int, found: list[bytes], timestamp: int) -> None:
    """What a slave does with its master's messages."""
    master = MastersLog(store.end_offset, 4096)
    for number, body in enumerate(found, first):
        message = make_message(body, keys=f"k{int(body.split()[0])}")
        master.add(message, number, timestamp)
    store.append_raw(master.start, master.read(master.start, 1 << 20))
    store.write_pending()


def test_next_offsets_are_not_known_while_the_log_in_front_is_not_dispatched(
    files: MemoryFiles,
) -> None:
    store = open_store(files, flush_disk_type="SYNC_FLUSH")
    found = numbered(0, 4)
    offsets = [store.append(make_message(body)).physical_offset for body in found]
    store.write_pending()
    cut(store, offsets[3])
    with pytest.raises(NotWritableError, match="not dispatched"):
        store.append(make_message())
    store.fsync()
    store.dispatch()
    assert store.append(make_message()).queue_offset == 3


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_a_log_that_is_cut_to_its_oldest_file_still_knows_where_it_is(
    files: MemoryFiles, seed: int | None
) -> None:
    clock = ManualClock()
    store = open_store(files, clock)
    fill(store, numbered(0, 30))
    store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    assert sum(store.clean(clock.now_ms, at_any_hour=True))
    first = store.min_physical_offset
    assert first > 0
    cut(store, first)
    end = store.max_queue_offset("Topic", 0)
    for after in (files.kill(), files.crash(seed)):
        again = open_store(after)
        assert (again.min_physical_offset, again.end_offset) == (first, first)
        assert again.append(make_message()).queue_offset == end > 0


def test_a_log_without_a_message_begins_where_its_masters_does(files: MemoryFiles) -> None:
    store = open_store(files)
    fill(store, numbered(0, 3))
    cut(store, 0)
    master = MastersLog(8192, 4096)
    master.add(make_message(b"first"), 7, START_MS)
    store.append_raw(8192, master.read(8192, 4096))
    store.write_pending()
    store.fsync()
    store.dispatch()
    assert bodies(store) == [b"first"]
    assert store.min_physical_offset == 8192
    assert bodies(open_store(files.crash())) == [b"first"]


@pytest.mark.parametrize("seed", [None, *range(20)])
@pytest.mark.parametrize("checkpoint", ["before", "none"])
@pytest.mark.parametrize("index", [True, False])
def test_messages_that_are_older_come_in_place_of_what_was_cut(
    files: MemoryFiles, index: bool, checkpoint: str, seed: int | None
) -> None:
    """Another master's clock was behind: times say nothing of what is safe."""
    store = open_store(files, message_index_enable=index)
    offsets = fill(store, numbered(0, 40))
    store.checkpoint()
    kept = numbered(0, 20)
    cut(store, offsets[20])
    if checkpoint == "before":
        store.checkpoint()
    copy(store, 20, numbered(100, 40), START_MS - 3_600_000)
    store.dispatch()
    after = open_store(files.crash(seed), message_index_enable=index)
    found = bodies(after)
    assert found[:20] == kept
    assert found[20:] == numbered(100, 40)[: len(found) - 20]
    assert not index or all(has_key(after, int(body.split()[0])) for body in found)


def test_a_checkpoint_that_was_prepared_claims_nothing_behind_a_cut(files: MemoryFiles) -> None:
    store = open_store(files)
    offsets = fill(store, numbered(0, 20))
    store.fsync()
    write = store.prepare_checkpoint(thorough=True)
    assert write is not None
    cut(store, offsets[10])
    copy(store, 10, numbered(100, 30), START_MS)
    store.fsync()
    write()
    assert read_checkpoint(files, store.paths.checkpoint).safe_offset <= offsets[10]


@pytest.mark.parametrize("seed", range(40))
def test_keys_of_what_was_cut_do_not_hide_those_that_follow(files: MemoryFiles, seed: int) -> None:
    store = open_store(files)
    offsets = fill(store, numbered(0, 30, size=20))
    store.checkpoint()
    cut(store, offsets[12])
    fill(store, numbered(100, 12, size=30))
    store.search_by_key("Topic", "k1", 1, 0, 1, [])
    after = open_store(files.crash(seed))
    for body in bodies(after):
        assert has_key(after, int(body.split()[0])), body


@pytest.mark.parametrize("kept", [0, 12])
@pytest.mark.parametrize("seed", [None, *range(20)])
def test_an_index_file_in_front_of_one_that_was_cut_off_is_checked_again(
    files: MemoryFiles, kept: int, seed: int | None
) -> None:
    """The one behind it begins at the same message as the one that was cut off."""
    store = open_store(files)
    found = numbered(0, 60, size=20)
    offsets = fill(store, found)
    store.checkpoint()
    cut(store, offsets[kept])
    write = store.prepare_checkpoint(thorough=False)
    assert write is not None
    write()
    fill(store, found[kept:])
    # Brings entries into the files.
    assert has_key(store, 59)
    after = open_store(files.crash(seed))
    assert bodies(after) == found
    assert all(has_key(after, number) for number in range(60))


@pytest.mark.parametrize("count", [30, 150])
@pytest.mark.parametrize("truncated", [False, True])
def test_a_cut_of_the_index_is_interrupted_anywhere(truncated: bool, count: int) -> None:
    """By a truncation, or by a start that finds less of the log; in one file or in several."""
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    offsets = fill(store, numbered(0, count, size=20))
    store.checkpoint()
    if not truncated:
        store.dispatch_limit = offsets[12]
        disk = FaultyFiles(memory.kill())

    def work() -> None:
        if truncated:
            cut(store, offsets[12])
        else:
            limited = MessageStore(store.config, disk, ManualClock())
            limited.dispatch_limit = offsets[12]
            limited.load()

    moment = 0
    for moment, left, _ in aftermaths(disk, work, seeds=range(5)):
        again = open_store(left)
        for body in bodies(again):
            assert has_key(again, int(body.split()[0])), (moment, body)
    assert moment > 10


def test_a_start_that_drops_files_of_the_index_is_interrupted_anywhere() -> None:
    """One in the middle is damaged: what the log brings again must not miss its keys."""
    memory = MemoryFiles()
    store = open_store(memory)
    fill(store, numbered(0, 150, size=20))
    store.checkpoint()
    memory = memory.kill()
    second = memory.list("/store/index")[1]
    memory.open(f"/store/index/{second}").truncate(100)
    disk = FaultyFiles(memory)
    moment = 0
    for moment, left, _ in aftermaths(disk, lambda: open_store(disk), seeds=range(10)):
        again = open_store(left)
        assert all(has_key(again, number) for number in range(150)), moment
    assert moment > 10


def test_an_index_header_that_cannot_be_written_is_not_behind_its_entries() -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    fill(store, numbered(0, 10, size=20))
    store.checkpoint()
    # The first call writes the entries, the second one the header.
    disk.faults.append(Fault("pwrite", "/index/", errno.ENOSPC, skip=1, times=1))
    fill(store, numbered(10, 50, size=20))
    with pytest.raises(NotWritableError):
        store.checkpoint()
    store.checkpoint()
    assert [by_key(store, "Topic", f"k{n}", 9, 0, 1 << 62) for n in range(60)] == [
        [message.physical_offset] for message in read_all(store)
    ]
    store.close()
    store = open_store(memory.kill())
    assert all(has_key(store, number) for number in range(60))


def test_nothing_is_claimed_or_removed_behind_a_truncation_that_failed() -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    clock = ManualClock()
    store = open_store(disk, clock)
    offsets = fill(store, numbered(0, 30))
    store.checkpoint()
    disk.faults.append(Fault("truncate", "consumequeue", errno.ENFILE, skip=1, times=1))
    with pytest.raises(NotWritableError, match="restart"):
        cut(store, offsets[25])
    disk.faults.clear()
    clock.now_ms += 100 * 3_600_000
    assert store.prepare_checkpoint() is None
    assert sum(store.clean(clock.now_ms, at_any_hour=True)) == 0
    assert bodies(open_store(memory.kill()))[:25] == numbered(0, 25)


def test_old_messages_stay_until_what_a_topic_begins_anew_with_is_durable(
    files: MemoryFiles,
) -> None:
    """Its master deleted the topic; the power takes the message that says so."""
    store = open_store(files)
    old = numbered(0, 9)
    fill(store, old)
    store.checkpoint()
    copy(store, 0, [b"1 new"], START_MS)
    store.dispatch()
    assert bodies(store) == old
    assert bodies(open_store(files.crash())) == old
    store.fsync()
    store.dispatch()
    assert bodies(store) == [b"1 new"]
    assert bodies(open_store(files.crash())) == [b"1 new"]


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue"])
def test_killed_while_the_only_file_is_emptied(directory: str) -> None:
    """Retention removed those in front of it: nothing else says where log and queue are."""
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    clock = ManualClock()
    store = open_store(disk, clock)
    fill(store, numbered(0, 38))
    store.checkpoint()
    for _ in range(5):
        clock.now_ms += 100 * 3_600_000
        sum(store.clean(clock.now_ms, at_any_hour=True))
        store.checkpoint()
        fill(store, [b"38 later"])
        store.checkpoint()
    first, end = store.min_physical_offset, store.max_queue_offset("Topic", 0)
    # The queues are first.
    left = first if directory == "commitlog" else store.end_offset
    assert store._queues.find("Topic", 0).segments.starts[0] > 0  # type: ignore[union-attr]
    assert first > 0
    disk.faults.append(Fault("truncate", directory, errno.EIO, skip=1, times=1))
    with pytest.raises(NotWritableError):
        cut(store, first)
    store = open_store(memory.kill())
    assert store.end_offset == left
    assert 30 <= store.max_queue_offset("Topic", 0) <= end


def test_a_topic_is_deleted_while_a_cut_that_failed_may_be_undone() -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    offsets = fill(store, numbered(0, 40))
    disk.faults.append(Fault("sync_dir", "commitlog", errno.EIO, times=1))
    with pytest.raises(NotWritableError):
        cut(store, offsets[5])
    store.remove_topics(["Topic"])
    # The log cannot be synced any more, deletions can.
    with pytest.raises(NotWritableError):
        store.fsync()
    assert bodies(open_store(memory.crash())) == []


def test_a_write_that_fails_in_the_only_file_leaves_the_file() -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    clock = ManualClock()
    store = open_store(disk, clock)
    fill(store, numbered(0, 30))
    store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    assert sum(store.clean(clock.now_ms, at_any_hour=True))
    first, end = store.min_physical_offset, store.max_queue_offset("Topic", 0)
    cut(store, first)
    disk.faults.append(Fault("pwrite", "commitlog", errno.EIO, times=1))
    store.append(make_message())
    with pytest.raises(NotWritableError):
        store.write_pending()
    store = open_store(memory.kill())
    assert store.end_offset == first > 0
    assert 0 < store.max_queue_offset("Topic", 0) <= end


def test_an_index_file_built_anew_is_not_taken_for_the_one_that_was_lost(
    files: MemoryFiles,
) -> None:
    """Both begin with the same message, and the checkpoint has a mark of the former."""
    store = open_store(files)
    fill(store, numbered(0, 20, size=20))
    store.checkpoint()
    files = files.kill()
    files.remove_tree("/store/index")
    store = open_store(files)
    assert has_key(store, 3)
    store = open_store(files.kill())
    assert all(has_key(store, number) for number in range(20))


@pytest.mark.parametrize("seed", range(20))
def test_a_refused_message_is_not_found_in_front_of_its_successor(seed: int) -> None:
    """Both are the first of their queue, as of a topic that was deleted and made again."""
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    fill(store, numbered(0, 3))
    store.append(make_message(b"refused", queue_id=1))
    disk.faults.append(Fault("pwrite", "commitlog", errno.ENOSPC, times=1, kept=600))
    with pytest.raises(NotWritableError):
        store.write_pending()
    store.append(make_message(b"another", topic="Other"))
    store.append(make_message(b"accepted", queue_id=1))
    store.write_pending()
    assert bodies(open_store(memory.crash(seed))) == numbered(0, 3)


class Watched(FaultyFiles):
    """Files that count what is asked of them."""

    def __init__(self, inner: MemoryFiles) -> None:
        super().__init__(inner)
        self.calls = 0

    def check(self, operation: str, path: str) -> Fault | None:
        self.calls += 1
        return super().check(operation, path)


def test_no_step_of_a_cut_goes_through_thousands_of_queues() -> None:
    disk = Watched(MemoryFiles())
    store = open_store(disk, mapped_file_size_commit_log=1 << 20)
    for queue_id in range(3_000):
        store.append(make_message(b"first", queue_id=queue_id))
    store.write_pending()
    offset = store.end_offset
    for queue_id in range(0, 3_000, 2):
        store.append(make_message(b"second", queue_id=queue_id))
    store.write_pending()
    store.fsync()
    while store.dispatch():
        pass
    store.checkpoint()
    calls = [disk.calls]
    for _ in store.truncate_to(offset):
        calls.append(disk.calls)
    calls.append(disk.calls)
    assert len(calls) > 50
    assert max(after - before for before, after in pairwise(calls)) < 500
    ends = [store.max_queue_offset("Topic", queue_id) for queue_id in range(3_000)]
    assert ends == [1] * 3_000


def test_no_step_of_a_cut_goes_through_all_files_of_the_log() -> None:
    disk = Watched(MemoryFiles())
    store = open_store(disk)
    offsets = fill(store, numbered(0, 400))
    calls = [disk.calls]
    for _ in store.truncate_to(offsets[3]):
        calls.append(disk.calls)
    assert len(calls) > 40
    assert max(after - before for before, after in pairwise(calls)) < 100
    assert bodies(store) == numbered(0, 3)


def test_no_step_of_a_cut_goes_through_all_of_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def noted(file: IndexFile, first: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        for number, entry in enumerate(entries(file, first, end), first):
            read.append(number)
            yield entry

    entries = IndexFile._entries
    monkeypatch.setattr(IndexFile, "_entries", noted)
    store = open_store(MemoryFiles(), mapped_file_size_commit_log=1 << 22, max_index_num=1 << 16)
    keys = [" ".join(f"{number}k{key}" for key in range(90)) for number in range(300)]
    offsets = put(store, *[make_message(keys=each) for each in keys])
    for _ in range(20):
        store.dispatch()
    counts = [0]
    for _ in store.truncate_to(offsets[290]):
        counts.append(len(read))
    counts.append(len(read))
    assert counts[-1] == 290 * 90
    assert max(after - before for before, after in pairwise(counts)) <= 10_000
    assert by_key(store, "Topic", "289k3", 9, 0, 1 << 62) == [offsets[289]]
    assert by_key(store, "Topic", "290k3", 9, 0, 1 << 62) == []


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut that others can look at as often as possible."""
    monkeypatch.setattr(cutting, "STEP_WORK", 1)
    monkeypatch.setattr(index_file, "STEP_ENTRIES", 1)


@pytest.mark.usefixtures("one_by_one")
def test_nobody_sees_a_message_that_is_not_there_while_a_cut_goes_on(files: MemoryFiles) -> None:
    store = open_store(files)
    offsets = put(
        store,
        *[make_message(b"%d" % n + bytes(300), queue_id=n % 5, keys=f"k{n}") for n in range(200)],
    )
    store.checkpoint()
    looks = 0
    for _ in store.truncate_to(offsets[61]):
        looks += 1
        for queue_id in range(5):
            found = [int(m.body.rstrip(b"\0")) for m in read_all(store, queue_id=queue_id)]
            assert found == list(range(queue_id, 5 * len(found), 5))
            assert len(found) == store.max_queue_offset("Topic", queue_id) >= 12
        assert all(by_key(store, "Topic", f"k{n}", 9, 0, 1 << 62) for n in (0, 33, 60))
        assert store.record_at(offsets[60])
    assert looks > 30


@pytest.mark.usefixtures("one_by_one")
def test_nothing_else_is_changed_while_a_cut_goes_on(files: MemoryFiles) -> None:
    clock = ManualClock()
    store = open_store(files, clock)
    offsets = fill(store, numbered(0, 60))
    store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    cleaning = store.clean(clock.now_ms, at_any_hour=True)
    for _ in store.truncate_to(offsets[30]):
        with pytest.raises(NotWritableError, match="cut"):
            store.append(make_message())
        with pytest.raises(NotWritableError, match="cut"):
            store.append_raw(store.end_offset, b"")
        with pytest.raises(NotWritableError, match="cut"):
            next(store.truncate_to(0))
        assert store.dispatch() == 0
        assert store.prepare_checkpoint() is None
        assert sum(cleaning) == sum(store.clean(clock.now_ms, at_any_hour=True)) == 0
    assert store.append(make_message()).queue_offset == 30


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("seed", [None, *range(5)])
def test_a_topic_is_deleted_while_a_cut_goes_on(seed: int | None) -> None:
    moment = 1
    while True:
        files = MemoryFiles()
        store = open_store(files)
        offsets = fill(store, numbered(0, 40))
        put(store, *[make_message(b"other", topic="Other") for _ in range(20)])
        store.checkpoint()
        steps = store.truncate_to(offsets[35])
        if sum(1 for _ in islice(steps, moment)) < moment:
            break
        store.remove_topics(["Topic"])
        left = sum(1 for _ in islice(steps, moment))
        if left == moment:
            # The process is killed, or the power goes away.
            store = open_store(files.crash(seed) if moment % 2 else files.kill())
            if queues_of(store).get("Topic"):
                assert bodies(store)[:35] == numbered(0, 35)
                moment += 1
                continue
        fill(store, numbered(100, 3))
        assert bodies(store) == numbered(100, 3)
        for after in (files.kill(), files.crash(seed)) if left < moment else ():
            assert bodies(open_store(after)) == numbered(100, 3)
        moment += 1
    assert moment > 10


@pytest.mark.usefixtures("one_by_one")
def test_a_store_is_closed_while_a_cut_goes_on(files: MemoryFiles) -> None:
    store = open_store(files)
    offsets = fill(store, numbered(0, 40))
    store.checkpoint()
    steps = store.truncate_to(offsets[20])
    for _ in range(3):
        next(steps)
    store.close()
    with pytest.raises(NotWritableError, match="closed"):
        next(steps)
    assert bodies(open_store(files))[:20] == numbered(0, 20)


@pytest.mark.usefixtures("one_by_one")
def test_a_cut_that_nobody_goes_on_with(files: MemoryFiles) -> None:
    store = open_store(files)
    offsets = fill(store, numbered(0, 40))
    steps = store.truncate_to(offsets[20])
    next(steps)
    steps.close()
    with pytest.raises(NotWritableError, match="given up half-way; restart"):
        store.append(make_message(b"behind"))
    assert bodies(open_store(files.kill()))[:20] == numbered(0, 20)


@pytest.mark.parametrize("directory", ["consumequeue", "index", "commitlog"])
def test_nothing_is_dispatched_behind_a_cut_that_failed(directory: str) -> None:
    """What is missing in queues and index would stand in front of it, where no start looks."""
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    offsets = fill(store, numbered(0, 12, size=20))
    store.checkpoint()
    store.dispatch_limit = store.end_offset
    for body in numbered(12, 6, size=20):
        store.append(make_message(body, keys=f"k{int(body.split()[0])}"))
    store.write_pending()
    store.fsync()
    disk.faults.append(Fault("truncate", directory, errno.EIO, skip=1, times=1))
    with pytest.raises(NotWritableError):
        cut(store, offsets[6])
    store.dispatch_limit = None
    assert store.dispatch() == 0
    store = open_store(memory.kill())
    assert all(has_key(store, int(body.split()[0])) for body in bodies(store))
    assert bodies(store)[:6] == numbered(0, 6, size=20)
