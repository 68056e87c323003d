"""What a store does to the disk does not grow with its queues, where nothing is asked of them."""

from itertools import pairwise

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.checkpointing import in_pieces
from tests.support.stores import make_message, open_store, put, queues_of


def _changes_of_a_restart(queues: int, *, kill: bool = False) -> tuple[int, int]:
    """How many calls change the disk when a store is opened that was closed, or killed, and when it
    is closed."""
    disk = MemoryFiles()
    # One file of the log, and none is made in advance.
    size = 1 << 20
    store = open_store(disk, mapped_file_size_commit_log=size)
    put(store, *(make_message(queue_id=number) for number in range(queues)))
    store.checkpoint()
    if kill:
        store._release()
    else:
        store.close()
    files = FaultyFiles(disk)
    store = open_store(files, mapped_file_size_commit_log=size)
    opened = files.changes
    assert len(queues_of(store)["Topic"]) == queues
    store.close()
    return opened, files.changes - opened


def test_a_restart_syncs_no_queue_that_did_not_change() -> None:
    assert _changes_of_a_restart(40) == _changes_of_a_restart(2)


def test_a_start_changes_no_queue_that_needs_no_change_even_after_a_kill() -> None:
    assert _changes_of_a_restart(40, kill=True)[0] == _changes_of_a_restart(2, kill=True)[0]


def test_what_stands_behind_the_end_of_a_queue_is_still_cut() -> None:
    disk = MemoryFiles()
    store = open_store(disk)
    put(store, *(make_message() for _ in range(3)))
    store.close()
    path = f"/store/consumequeue/Topic/0/{0:020}"
    disk.open(path).pwrite(b"\1", 150)
    store = open_store(disk)
    assert store.max_queue_offset("Topic", 0) == 3
    store.close()
    assert disk.read(path)[60:] == bytes(140)


class Name(str):
    """A name that counts how often names are compared."""

    compared = 0

    def __lt__(self, other: str) -> bool:
        Name.compared += 1
        return super().__lt__(other)


def test_a_checkpoint_of_very_many_files_begins_without_sorting_all() -> None:
    names = [Name(number) for number in range(20_000)]
    pieces = in_pieces(reversed(names))
    next(pieces)
    assert Name.compared < 15_000
    assert len(set(pieces)) == 20_000 - 1
    assert list(in_pieces({"b", "c", "a"})) == ["a", "b", "c"]


def test_queues_are_written_a_few_at_a_time() -> None:
    files = FaultyFiles(MemoryFiles())
    store = open_store(files)
    for _ in range(2):
        put(store, *(make_message(queue_id=number) for number in range(300)))
    changes = [files.changes]
    for _ in store.write_queues():
        changes.append(files.changes)
    assert len(changes) > 5
    assert max(after - before for before, after in pairwise(changes)) <= 50
    before = files.changes
    assert store.prepare_checkpoint() is not None
    assert files.changes == before
    store.close()
