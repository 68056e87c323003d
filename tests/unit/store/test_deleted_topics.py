"""What was deleted stays deleted, whatever is built again; what came after it stays."""

import errno

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.checkpoint import read_checkpoint
from rocketmq_tw.store.errors import DamagedStoreError, IllegalMessageError, NotWritableError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import (
    ROOT,
    ManualClock,
    by_key,
    cut,
    make_message,
    open_store,
    put,
    queues_of,
    read_all,
)
from tests.support.tables import tables_of


def bodies(store: MessageStore, topic: str = "Topic") -> list[bytes]:
    return [message.body for message in read_all(store, topic)]


def fill(store: MessageStore, first: int, count: int, topic: str = "Topic") -> None:
    put(store, *[make_message(b"%d" % n, topic=topic) for n in range(first, first + count)])


def delete_and_make_again(store: MessageStore) -> None:
    fill(store, 0, 10)
    store.remove_topics(["Topic"])
    store.fsync()
    fill(store, 100, 5)


AGAIN = [b"%d" % n for n in range(100, 105)]


def test_deleted_before_the_first_checkpoint_and_killed(files: MemoryFiles) -> None:
    delete_and_make_again(open_store(files))
    assert bodies(open_store(files.kill())) == AGAIN


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_deleted_and_made_again_through_a_power_loss(files: MemoryFiles, seed: int | None) -> None:
    store = open_store(files, flush_disk_type="SYNC_FLUSH")
    fill(store, 0, 25)
    fill(store, 0, 3, "Other")
    store.checkpoint()
    store.remove_topics(["Topic"])
    fill(store, 100, 5)
    store = open_store(files.crash(seed), flush_disk_type="SYNC_FLUSH")
    assert bodies(store) == AGAIN
    assert len(bodies(store, "Other")) == 3
    assert store.append(make_message()).queue_offset == 5


def test_all_queues_built_again_leave_out_what_was_deleted(files: MemoryFiles) -> None:
    store = open_store(files)
    delete_and_make_again(store)
    fill(store, 0, 4, "Gone")
    store.remove_topics(["Gone"])
    store.close()
    for _ in range(2):
        files.remove_tree(f"{ROOT}/consumequeue")
        store = open_store(files)
        assert bodies(store) == AGAIN
        assert queues_of(store) == {"Topic": {0}}
        assert by_key(store, "Gone", "k", 9, 0, 1 << 62) == []
        store.close()


def test_a_queue_that_never_got_a_message_does_not_count(files: MemoryFiles) -> None:
    store = open_store(files)
    fill(store, 0, 10)
    with pytest.raises(IllegalMessageError):
        store.append(make_message(bytes(5000), topic="Refused"))
    store.append(make_message(topic="Waiting"))
    store.checkpoint()
    assert read_checkpoint(files, store.paths.checkpoint).queues == 1
    store = open_store(files.kill())
    assert store.report is not None and store.report.notes == []
    assert store.report.records == 0


def test_a_deletion_after_a_checkpoint_makes_no_start_read_everything(files: MemoryFiles) -> None:
    store = open_store(files)
    fill(store, 0, 10)
    fill(store, 0, 10, "Gone")
    store.checkpoint()
    store.remove_topics(["Gone"])
    store.fsync()
    after = open_store(files.kill())
    assert after.report is not None and (after.report.records, after.report.notes) == (0, [])
    after.remove_topics(["Topic"])
    after.fsync()
    last = open_store(files.kill())
    assert last.report is not None and last.report.records == 0


def test_messages_that_wait_for_dispatch_go_with_their_topic(files: MemoryFiles) -> None:
    store = open_store(files, flush_disk_type="SYNC_FLUSH")
    for topic in ("Gone", "Kept"):
        store.append(make_message(b"waits", topic=topic))
    store.write_pending()
    store.remove_topics(["Gone"])
    store.close()
    assert not files.exists(f"{ROOT}/abort")
    store = open_store(files)
    assert store.report is not None and store.report.clean
    assert queues_of(store) == {"Kept": {0}}


def test_a_replicas_messages_that_wait_go_with_their_topic(files: MemoryFiles) -> None:
    store = open_store(MemoryFiles())
    fill(store, 0, 3, "Gone")
    fill(store, 0, 3, "Kept")
    replica = open_store(files)
    replica.append_raw(0, store.read_log(0, 4096))
    replica.remove_topics(["Gone"])
    replica.write_pending()
    replica.dispatch()
    assert queues_of(replica) == {"Kept": {0}}


def test_removing_topics_syncs_nothing_on_the_calling_thread(files: MemoryFiles) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    for topic in ("A", "B", "C"):
        fill(store, 0, 30, topic)
    store.checkpoint()
    disk.faults += [Fault("fsync"), Fault("sync_dir")]
    store.remove_topics(["A", "B"])
    assert queues_of(store) == {"C": {0}}
    assert store.has_unsynced_deletions
    disk.faults.clear()
    store.fsync()
    assert not store.has_unsynced_deletions
    assert queues_of(open_store(files.crash())) == {"C": {0}}


def test_a_deletion_that_cannot_be_written_or_synced_is_said(files: MemoryFiles) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    fill(store, 0, 3)
    store.checkpoint()
    disk.faults.append(Fault("create", "deletedtopics", times=1))
    with pytest.raises(NotWritableError, match="deletion"):
        store.remove_topics(["Topic"])
    assert bodies(store) == [b"0", b"1", b"2"]
    store.remove_topics(["Topic"])
    disk.faults.append(Fault("fsync", "deletedtopics", times=1))
    with pytest.raises(NotWritableError, match="deletions"):
        store.fsync()
    store.fsync()
    assert not store.has_unsynced_deletions
    fill(store, 0, 3, "Other")
    store.checkpoint()
    assert queues_of(open_store(files.crash())) == {"Other": {0}}


def test_a_deletion_that_could_not_be_synced_is_durable_behind_a_restart(
    files: MemoryFiles,
) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    fill(store, 0, 3)
    fill(store, 0, 3, "Other")
    store.checkpoint()
    disk.faults.append(Fault("fsync", "deletedtopics", times=1))
    store.remove_topics(["Topic"])
    with pytest.raises(NotWritableError, match="deletions"):
        store.fsync()
    files = files.kill()
    # A start that has removed its queues goes no further.
    disk = FaultyFiles(files)
    disk.faults.append(Fault("pread", "commitlog"))
    with pytest.raises(DamagedStoreError):
        open_store(disk)
    assert queues_of(open_store(files.crash())) == {"Other": {0}}


def test_notes_that_were_lost_are_written_again_with_later_ones(files: MemoryFiles) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    topics = [f"T{n}" for n in range(4)]
    for topic in topics:
        fill(store, 0, 3, topic)
    store.checkpoint()
    store.remove_topics(["T0"])
    store.fsync()
    disk.faults.append(Fault("fsync", "deletedtopics", times=2))
    store.remove_topics(["T1"])
    with pytest.raises(NotWritableError, match="deletions"):
        store.fsync()
    store.remove_topics(["T2"])
    with pytest.raises(NotWritableError, match="deletions"):
        store.fsync()
    store.fsync()
    assert queues_of(open_store(files.crash())) == {"T3": {0}}


@pytest.mark.parametrize("seed", range(8))
def test_a_deletion_that_was_refused_is_none_behind_a_power_loss(seed: int) -> None:
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk, flush_disk_type="SYNC_FLUSH")
    put(store, make_message(b"kept", topic="A"))
    store.remove_topics(["B"])
    store.fsync()
    disk.faults = [Fault("pwrite", "deletedtopics", errno.EMFILE, times=1, kept=1000)]
    with pytest.raises(NotWritableError):
        store.remove_topics(["A"])
    assert isinstance(disk.inner, MemoryFiles)
    assert bodies(open_store(disk.inner.crash(seed)), "A") == [b"kept"]


def test_a_torn_line_takes_no_other_along(files: MemoryFiles) -> None:
    store = open_store(files)
    for topic in ("A", "B", "C"):
        fill(store, 0, 3, topic)
        store.remove_topics([topic])
    path = store.paths.deleted_topics
    data = files.read(path)
    at = data.index(b'"B"')
    files.open(path).pwrite(bytes(8), at - 4)
    files.remove_tree(f"{ROOT}/consumequeue")
    assert queues_of(open_store(files.kill())) == {"B": {0}}


def test_deletions_are_forgotten_with_their_log(files: MemoryFiles) -> None:
    """Also where the log was removed: new messages begin at 0 again."""
    store = open_store(files)
    fill(store, 0, 10)
    store.remove_topics(["Topic"])
    store.close()
    files.remove_tree(f"{ROOT}/commitlog")
    files.remove_tree(f"{ROOT}/consumequeue")
    files.remove(f"{ROOT}/checkpoint")
    store = open_store(files)
    fill(store, 100, 5)
    files.remove_tree(f"{ROOT}/consumequeue")
    assert bodies(open_store(files.kill())) == AGAIN
    assert files.read(store.paths.deleted_topics) == b""


def test_a_truncated_log_meets_its_offsets_again(files: MemoryFiles) -> None:
    store = open_store(files)
    fill(store, 0, 10, "Other")
    end = store.end_offset
    fill(store, 0, 10)
    store.remove_topics(["Topic"])
    cut(store, end)
    fill(store, 100, 5)
    files.remove_tree(f"{ROOT}/consumequeue")
    assert bodies(open_store(files.kill())) == AGAIN


def test_a_write_that_fails_behind_a_deletion_gives_its_offsets_back(files: MemoryFiles) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    fill(store, 0, 3)
    store.append(make_message(bytes(800)))
    store.remove_topics(["Topic"])
    disk.faults.append(Fault("pwrite", "commitlog", errno.ENOSPC, times=1))
    with pytest.raises(NotWritableError):
        store.write_pending()
    fill(store, 100, 5)
    assert bodies(open_store(files.kill())) == AGAIN


@pytest.mark.parametrize("seed", range(20))
def test_offsets_given_back_are_so_in_front_of_all_that_gets_them(
    files: MemoryFiles, seed: int
) -> None:
    """Through a power loss that happens to leave what came behind, which nobody synced."""
    disk = FaultyFiles(files)
    store = open_store(disk)
    fill(store, 0, 5)
    store.append(make_message(bytes(100), topic="Other"))
    store.remove_topics(["Topic"])
    disk.faults.append(Fault("pwrite", "commitlog", error=errno.ENOSPC, times=1))
    with pytest.raises(NotWritableError):
        store.write_pending()
    for number in range(4):
        store.append(make_message(b"%d" % number))
    store.write_pending()
    found = bodies(open_store(files.crash(seed)))
    assert found == [b"%d" % number for number in range(len(found))]


def test_a_queue_that_lost_all_to_retention_and_a_cut_keeps_its_place(files: MemoryFiles) -> None:
    clock = ManualClock()
    store = open_store(files, clock)
    delete_and_make_again(store)
    put(store, *[make_message(bytes(900), queue_id=1) for _ in range(12)])
    store.checkpoint()
    store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    assert sum(store.clean(clock.now_ms, at_any_hour=True))
    (start,) = [unit.position for unit in store.queue_units("Topic", 1, 11, 1)]
    assert store.min_queue_offset("Topic", 1) == 10
    cut(store, store.min_physical_offset)
    assert start > store.end_offset
    assert store.max_queue_offset("Topic", 1) == 10
    assert open_store(files.kill(), clock).max_queue_offset("Topic", 1) == 10


def test_after_half_a_deletion_there_is_no_other_one() -> None:
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)
    fill(store, 0, 3)
    fill(store, 0, 3, "Other")
    disk.faults += [
        Fault("pwrite", "deletedtopics", times=1, kept=7),
        Fault("truncate", "deletedtopics", times=1),
    ]
    for topic, why in (("Topic", "cannot be written"), ("Other", "restart")):
        with pytest.raises(NotWritableError, match=why):
            store.remove_topics([topic])
    after = open_store(disk.inner.kill())
    assert len(bodies(after)) == len(bodies(after, "Other")) == 3


def test_a_deletion_is_forgotten_once_the_log_has_nothing_of_the_topic(files: MemoryFiles) -> None:
    clock = ManualClock()
    store = open_store(files, clock, file_reserved_time=1)
    for number in range(50):
        fill(store, 0, 3, f"T{number}")
        store.remove_topics([f"T{number}"])
    fill(store, 0, 3, "Topic")
    store.remove_topics(["Topic"])
    fill(store, 100, 5)
    store.checkpoint()
    clock.now_ms += 2 * 3600 * 1000
    assert sum(store.clean(clock.now_ms, at_any_hour=True))
    kept = tables_of(store)
    assert 0 < kept["DeletedTopics._latest"] == kept["DeletedTopics._all"] < 20
    # What the log still has of one that is noted stays deleted.
    assert bodies(open_store(files.kill())) == AGAIN
