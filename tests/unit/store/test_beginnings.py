"""A topic that its master deleted and made again, as a copy learns it: from the log alone."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.message_store import MessageStore
from tests.support.masters_log import MastersLog
from tests.support.stores import (
    ROOT,
    START_MS,
    ManualClock,
    cut,
    make_message,
    open_store,
    put,
    read_all,
    small_config,
)

#: A queue's id, its message's queue offset, and its body.
Message = tuple[int, int, bytes]

#: Both queues of the old topic get messages by turns.
OLD: list[Message] = [(n % 2, n // 2, b"old") for n in range(6)]
#: Nothing tells the first one of these from one of the old topic.
NEW: list[Message] = [(2, 0, b"new 2"), (0, 0, b"new 0"), (2, 1, b"more 2"), (0, 1, b"more 0")]


def copy(store: MessageStore, messages: Iterable[Message]) -> None:
    """What a slave gets of its master's log, durable but not dispatched."""
    master = MastersLog(store.end_offset, 4096)
    for queue_id, queue_offset, body in messages:
        master.add(make_message(body, queue_id=queue_id), queue_offset, START_MS)
    store.append_raw(master.start, master.read(master.start, 1 << 20))
    store.write_pending()
    store.fsync()


def dispatch(store: MessageStore) -> None:
    while store.dispatch():
        pass


def bodies(store: MessageStore) -> dict[int, list[bytes]]:
    """What the queues of the topic have, of those that have anything."""
    found = {n: [message.body for message in read_all(store, "Topic", n)] for n in range(3)}
    return {queue_id: each for queue_id, each in found.items() if each}


def without_its_messages(files: IFiles, clock: ManualClock) -> MessageStore:
    """A store whose log has no message of the topic any more: queue 0 knows the last one that it
    had, queue 1 only that it had ten."""
    store = open_store(files, clock)
    put(store, *[make_message(bytes(600), queue_id=0) for _ in range(2)])
    put(store, *[make_message(bytes(900), queue_id=1) for _ in range(12)])
    store.checkpoint()
    store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    assert sum(store.clean(clock.now_ms, at_any_hour=True))
    cut(store, store.min_physical_offset)
    assert [store.max_queue_offset("Topic", n) for n in (0, 1)] == [2, 10]
    assert bodies(store) == {}
    return store


@pytest.mark.parametrize("restarted", [False, True])
def test_a_queue_that_knows_no_message_keeps_its_first_one(
    files: MemoryFiles, restarted: bool
) -> None:
    """The queue that begins anew behind it is the first sign of the topic's deletion."""
    clock = ManualClock()
    store = without_its_messages(files, clock)
    copy(store, [(1, 0, b"first"), (0, 0, b"second")])
    if restarted:
        store = open_store(files := files.kill(), clock)
    dispatch(store)
    wanted = {0: [b"second"], 1: [b"first"]}
    assert bodies(store) == wanted
    for after in (files.kill(), files.crash(), files.crash(1)):
        store = open_store(after, clock)
        dispatch(store)
        assert bodies(store) == wanted
        assert store.append(make_message(queue_id=1)).queue_offset == 1


def test_a_queue_whose_first_file_was_lost_is_no_sign_of_a_deletion(files: MemoryFiles) -> None:
    """Only the second file's name survived a power loss, and a start that may not dispatch all of
    the log yet has not met the queue's messages."""
    store = open_store(files)
    old = [*OLD, *((2, n, b"%d" % n) for n in range(12))]
    copy(store, old)
    dispatch(store)
    limit = store.message_at(0)
    assert limit is not None
    files = files.kill()
    queue = f"{ROOT}/consumequeue/Topic/2"
    files.remove(f"{queue}/{0:020d}")
    files.open(f"{queue}/{200:020d}").truncate(0)
    store = MessageStore(small_config(), files, ManualClock())
    store.dispatch_limit = limit.store_size
    store.load()
    assert bodies(store) == {0: [b"old"]}
    store.dispatch_limit = None
    dispatch(store)
    assert bodies(store) == {n: [body for at, _, body in old if at == n] for n in range(3)}


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("begun", ["live", "by a start"])
def test_what_may_be_of_the_new_topic_stays(files: MemoryFiles, begun: str, extended: bool) -> None:
    """A queue that the old topic did not have got a message before the others."""
    store = open_store(files, enable_consume_queue_ext=extended)
    copy(store, OLD)
    dispatch(store)
    assert bodies(store) == {0: [b"old"] * 3, 1: [b"old"] * 3}
    store.checkpoint()
    copy(store, NEW)
    if begun == "live":
        dispatch(store)
    else:
        store = open_store(files := files.kill(), enable_consume_queue_ext=extended)
    wanted = {0: [b"new 0", b"more 0"], 2: [b"new 2", b"more 2"]}
    assert bodies(store) == wanted
    assert store.max_queue_offset("Topic", 1) == 0
    for after in (files.kill(), files.crash(), *map(files.crash, range(10))):
        assert bodies(open_store(after, enable_consume_queue_ext=extended)) == wanted
    store.checkpoint()
    assert files.list(f"{ROOT}/deletedqueues/0") == []
    for after in (files.kill(), files.crash(), *map(files.crash, range(10))):
        store = open_store(after, enable_consume_queue_ext=extended)
        assert bodies(store) == wanted
        assert store.report is not None and store.report.records == 0
    for path in files.list(f"{ROOT}/consumequeue/Topic"):
        files.remove_tree(f"{ROOT}/consumequeue/Topic/{path}")
    assert bodies(open_store(files.kill(), enable_consume_queue_ext=extended)) == wanted


def test_what_stays_goes_where_it_begins_anew_too(files: MemoryFiles) -> None:
    """It was of the old topic after all."""
    store = open_store(files)
    copy(store, [*OLD, (2, 0, b"old")])
    dispatch(store)
    copy(store, [(0, 0, b"new 0"), (2, 0, b"new 2")])
    dispatch(store)
    assert bodies(store) == {0: [b"new 0"], 2: [b"new 2"]}
    assert bodies(open_store(files.kill())) == {0: [b"new 0"], 2: [b"new 2"]}


def test_the_power_goes_at_any_moment_while_some_queues_go() -> None:
    wanted = {0: [b"new 0", b"more 0"], 2: [b"new 2", b"more 2"]}
    moment, is_over = 1, False
    while not is_over:
        memory = MemoryFiles()
        disk = FaultyFiles(memory)
        store = open_store(disk)
        copy(store, OLD)
        dispatch(store)
        store.checkpoint()
        copy(store, NEW)
        disk.lose_power_at = disk.changes + moment
        try:
            dispatch(store)
            store.checkpoint()
            is_over = True
        except PowerLoss:
            pass
        for after in (memory.kill(), memory.crash(), *map(memory.crash, range(20))):
            assert bodies(open_store(after)) == wanted, moment
        moment += 1
    assert moment > 10


def test_queues_that_cannot_be_moved_are_removed(files: MemoryFiles) -> None:
    disk = FaultyFiles(files)
    store = open_store(disk)
    copy(store, OLD)
    dispatch(store)
    copy(store, NEW)
    disk.faults.append(Fault("rename", "/Topic/1", error=errno.EXDEV, times=1))
    dispatch(store)
    wanted = {0: [b"new 0", b"more 0"], 2: [b"new 2", b"more 2"]}
    assert bodies(store) == wanted
    assert not files.exists(f"{ROOT}/consumequeue/Topic/1")
    assert bodies(open_store(files.kill())) == wanted
