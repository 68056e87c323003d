"""Messages with thousands of keys: a dispatch does little at a time, and loses none of them."""

import pytest

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store import dispatching
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import by_key, make_message, open_store, read_all
from tests.support.traced_memory import traced_memory

MESSAGES, KEYS = 40, 300
#: Of each message that is large for its properties.
PROPERTY_BYTES = 30_000
SIZES = {"max_index_num": 5000, "max_hash_slot_num": 4096, "mapped_file_size_commit_log": 1 << 20}


def fill(store: MessageStore) -> None:
    for number in range(MESSAGES):
        keys = " ".join(f"k{number}-{key}" for key in range(KEYS))
        store.append(make_message(b"%d" % number, keys=keys))
    store.write_pending()
    store.fsync()


def has_all(store: MessageStore) -> bool:
    """Of some keys, whether each is found."""
    return len(read_all(store)) == MESSAGES and all(
        by_key(store, "Topic", f"k{number}-{key}", 9, 0, 1 << 62)
        for number in range(MESSAGES)
        for key in (0, KEYS // 2, KEYS - 1)
    )


@pytest.mark.parametrize(
    ("limit", "waiting"),
    [("_MOST_WAITING", 1 << 18), ("_MOST_WAITING", 1000), ("_MOST_WAITING_BYTES", 10_000)],
)
def test_a_dispatch_takes_some_and_the_next_ones_the_rest(
    monkeypatch: pytest.MonkeyPatch, limit: str, waiting: int
) -> None:
    monkeypatch.setattr(dispatching, limit, waiting)
    monkeypatch.setattr(dispatching, "_WORK", 1500)
    store = open_store(MemoryFiles(), **SIZES)
    fill(store)
    counts = []
    while count := store.dispatch():
        counts.append(count)
        assert store.is_dispatched == (sum(counts) == MESSAGES)
    assert counts == [5] * 8
    assert has_all(store)


@pytest.mark.parametrize("dispatches", [1, 3])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_kill_in_between_loses_none(
    monkeypatch: pytest.MonkeyPatch, dispatches: int, checkpoint: bool
) -> None:
    monkeypatch.setattr(dispatching, "_WORK", 1500)
    files = MemoryFiles()
    store = open_store(files, **SIZES)
    fill(store)
    for _ in range(dispatches):
        store.dispatch()
    if checkpoint:
        store.checkpoint()
    assert has_all(open_store(files.kill(), **SIZES))
    if checkpoint:
        assert has_all(open_store(files.crash(), **SIZES))


def test_a_stop_in_between_is_a_clean_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "_WORK", 1500)
    files = MemoryFiles()
    store = open_store(files, **SIZES)
    fill(store)
    store.close()
    after = open_store(files, **SIZES)
    assert after.report is not None and after.report.clean and has_all(after)


def test_what_is_cut_or_deleted_meanwhile_is_not_dispatched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatching, "_WORK", 1500)
    store = open_store(MemoryFiles(), **SIZES)
    fill(store)
    store.dispatch()
    store.remove_topics(["Topic"])
    assert sum(iter(store.dispatch, 0)) == MESSAGES - 5
    assert read_all(store) == []
    fill(store)
    assert sum(iter(store.dispatch, 0)) == MESSAGES and has_all(store)


def test_large_properties_that_cannot_be_dispatched_yet_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = []
    for most in (PROPERTY_BYTES * 2 * MESSAGES, PROPERTY_BYTES * 5):
        monkeypatch.setattr(dispatching, "_MOST_WAITING_BYTES", most)
        store = open_store(MemoryFiles(), **SIZES)
        store.dispatch_limit = 0
        with traced_memory() as traced:
            for number in range(MESSAGES):
                name = f"P{number}\x01".encode()
                store.append(make_message(b"", properties=name + bytes(PROPERTY_BYTES)))
            store.write_pending()
            taken.append(traced.held)
        store.dispatch_limit = None
        assert sum(iter(store.dispatch, 0)) == MESSAGES
        assert len(read_all(store)) == MESSAGES
    assert taken[1] < taken[0] - PROPERTY_BYTES * (MESSAGES - 10)
