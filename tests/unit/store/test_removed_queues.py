"""Queues of deleted topics go at once, and their files once nothing can undo the deletion."""

import errno

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.names import pop_retry_topic
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import ROOT, ManualClock, make_message, open_store, put, read_all

QUEUE = f"{ROOT}/consumequeue/Topic/0"


def bodies(store: MessageStore) -> list[bytes]:
    return [message.body for message in read_all(store)]


def fill(store: MessageStore, first: int, count: int) -> list[bytes]:
    found = [b"%d" % number for number in range(first, first + count)]
    put(store, *[make_message(body) for body in found])
    return found


def test_a_deletion_removes_no_file_on_the_calling_thread(files: MemoryFiles) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    put(store, *[make_message(queue_id=n % 200) for n in range(2000)])
    disk.faults.append(Fault("remove"))
    before = disk.changes
    store.remove_topics(["Topic"])
    assert disk.changes - before < 5
    assert not files.exists(QUEUE)
    assert len(files.list(f"{ROOT}/deletedqueues/0/Topic")) == 200
    disk.faults.clear()
    store.checkpoint()
    assert files.list(f"{ROOT}/deletedqueues/0") == []


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("again", [0, 1, 3])
def test_a_deletion_that_is_lost_with_the_power_has_removed_nothing(
    files: MemoryFiles, seed: int, again: int
) -> None:
    """Also where what was done to directories is durable and the note of it is not."""
    store = open_store(files)
    kept = fill(store, 0, 25)
    store.checkpoint()
    for time in range(again + 1):
        store.remove_topics(["Topic"])
        store.append(make_message(b"%d" % time))
        store.write_pending()
        store.dispatch()
    for directory in ("consumequeue", "deletedqueues/0", "deletedqueues"):
        files.sync_dir(f"{ROOT}/{directory}")
    after = files.crash(seed)
    # The note of it is lost.
    if after.exists(f"{ROOT}/deletedtopics"):
        after.remove(f"{ROOT}/deletedtopics")
    store = open_store(after)
    # Unless the log kept, by chance, what the topic got behind it.
    assert bodies(store) in (kept, *([b"%d" % time] for time in range(again + 1)))
    assert after.list(f"{ROOT}/deletedqueues/0") == []


def test_no_checkpoint_claims_a_queue_less_before_its_deletion_is_durable(
    files: MemoryFiles,
) -> None:
    """A checkpoint that was prepared before finds the files gone and cannot sync them."""
    store = open_store(files)
    fill(store, 0, 25)
    store.fsync()
    write = store.prepare_checkpoint()
    assert write is not None
    store.remove_topics(["Topic"])
    write()
    assert not store.has_unsynced_deletions
    assert bodies(open_store(files.crash())) == []


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_deleted_again_and_again_before_any_checkpoint(
    files: MemoryFiles, seed: int | None
) -> None:
    store = open_store(files)
    for time in range(4):
        last = fill(store, 100 * time, 12)
        store.remove_topics(["Topic"])
    store.fsync()
    store = open_store(files.kill())
    assert bodies(store) == []
    last = fill(store, 900, 3)
    store = open_store(files.crash(seed))
    assert bodies(store) in ([], last)


def test_queues_that_cannot_be_moved_go_once_their_deletion_is_durable(files: MemoryFiles) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    fill(store, 0, 25)
    disk.faults.append(Fault("rename", error=errno.EXDEV, times=1))
    store.remove_topics(["Topic"])
    assert not store.has_unsynced_deletions
    assert not files.exists(QUEUE)
    again = fill(store, 100, 3)
    assert bodies(open_store(files.kill())) == again


def test_queues_that_can_neither_be_moved_nor_deleted_durably_end_all_writing(
    files: MemoryFiles,
) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    fill(store, 0, 25)
    disk.faults += [Fault("rename"), Fault("fsync", "deletedtopics")]
    with pytest.raises(NotWritableError):
        store.remove_topics(["Topic"])
    with pytest.raises(NotWritableError, match="restart"):
        store.append(make_message())


def test_a_start_acts_on_no_note_that_the_power_could_take(files: MemoryFiles) -> None:
    """The process was killed before it synced it."""
    store = open_store(files)
    fill(store, 0, 25)
    store.checkpoint()
    store.remove_topics(["Topic"])
    disk = FaultyFiles(files.kill())
    disk.faults.append(Fault("fsync", "deletedtopics", times=1))
    with pytest.raises(OSError):
        open_store(disk)
    assert disk.inner.exists(f"{ROOT}/deletedqueues/0/Topic/0")  # type: ignore[attr-defined]
    store = open_store(disk.inner.kill())  # type: ignore[attr-defined]
    assert bodies(store) == []


@pytest.mark.parametrize("seed", [None, *range(20)])
def test_a_note_is_forgotten_once_no_queue_of_its_can_come_back(
    files: MemoryFiles, seed: int | None
) -> None:
    clock = ManualClock()
    store = open_store(files, clock)
    fill(store, 0, 12)
    store.remove_topics(["Topic"])
    new = fill(store, 100, 3)
    put(store, *[make_message(bytes(500), topic="Other") for _ in range(12)])
    store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    assert sum(store.clean(clock.now_ms, at_any_hour=True))
    store.close()
    files = files.kill()
    store = open_store(files)
    assert files.read(store.paths.deleted_topics) == b""
    # As the removal of files was not made durable by anybody but the start.
    store = open_store(files.crash(seed))
    assert store.max_queue_offset("Topic", 0) == len(new)
    assert bodies(store) == []


def test_units_of_a_deletion_do_not_make_up_for_lost_ones(files: MemoryFiles) -> None:
    """Two checkpoints have the same safe offset, one of them counts the topic."""
    store = open_store(files)
    put(store, *[make_message(topic="Gone") for _ in range(12)])
    kept = fill(store, 0, 12)
    store.checkpoint()
    store.remove_topics(["Gone"])
    store.checkpoint()
    after = files.kill()
    after.open(f"{QUEUE}/{0:020d}").truncate(40)
    after.remove(f"{QUEUE}/{200:020d}")
    assert bodies(open_store(after)) == kept
    assert after.list(QUEUE) != []


def test_the_power_goes_at_any_moment_of_moving_queues_back() -> None:
    moment, kept = 1, [b"%d" % number for number in range(25)]
    while True:
        files = MemoryFiles()
        store = open_store(files)
        fill(store, 0, 25)
        store.checkpoint()
        store.remove_topics(["Topic"])
        files.sync_dir(f"{ROOT}/consumequeue")
        files.sync_dir(f"{ROOT}/deletedqueues/0")
        files = files.crash()
        disk = FaultyFiles(files)
        disk.lose_power_at = moment
        try:
            open_store(disk)
            break
        except PowerLoss:
            for seed in (None, 1, 2):
                after = files.crash(seed)
                units = f"{QUEUE}/{0:020d}"
                moved = f"{ROOT}/deletedqueues/0/Topic/0/{0:020d}"
                assert after.exists(units) or after.exists(moved)
                assert bodies(open_store(after)) == kept
        moment += 1
    assert moment > 5


def test_retry_topics_of_pop_go_with_their_files(files: MemoryFiles) -> None:
    """Their names have a plus in the middle, which no client may use."""
    topic = pop_retry_topic("Topic", "group", version=2)
    store = open_store(files)
    put(store, make_message(topic=topic))
    store.remove_topics([topic])
    store.checkpoint()
    assert files.list(f"{ROOT}/consumequeue") == files.list(f"{ROOT}/deletedqueues/0") == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a@0"])
def test_what_can_name_no_topic_removes_no_files(files: MemoryFiles, name: str) -> None:
    store = open_store(files)
    kept = fill(store, 0, 3)
    store.remove_topics([name])
    store.checkpoint()
    assert bodies(open_store(files.kill())) == kept
