"""Extensions of consume queues: what units lead to there, and that it stays with them."""

from __future__ import annotations

import errno
import struct
from typing import Any
from unittest.mock import Mock

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.batch import Batch, BatchedMessage
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.store.errors import NotWritableError, StoreError
from rocketmq_tw.store.interface import GetStatus, MessageFilter
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.queue_extension import UnitExtra
from tests.support.stores import (
    ROOT,
    START_MS,
    ManualClock,
    cut,
    make_message,
    open_store,
    put,
    read_all,
)

EXT = f"{ROOT}/consumequeue_ext/Topic/0"
FIRST = f"{EXT}/{0:020d}"
HOUR_MS = 3_600_000
#: With bits of 180 bytes, so that a file of 4096 has room for twenty extras.
BITS = bytes(range(180))


def opened(files: Any, clock: ManualClock | None = None, **changes: Any) -> MessageStore:
    """A store whose messages get the number in their body in front of their bits."""
    settings = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 4096}
    store = open_store(files, clock, **settings | changes)
    store.extensions.bits_of = lambda topic, properties, store_timestamp: properties[-2:-1] + BITS
    return store


def fill(store: MessageStore, count: int, first: int = 0) -> None:
    put(
        store,
        *(
            make_message(b"%d" % n, tags="ab"[n % 2], properties=b"n\x01%d\x02" % (n % 10))
            for n in range(first, first + count)
        ),
    )


def extras(store: MessageStore, offset: int = 0, count: int = 1000) -> list[UnitExtra | None]:
    return [unit.extra for unit in store.queue_units("Topic", 0, offset, count)]


def expected(count: int, first: int = 0) -> list[UnitExtra | None]:
    # TAGS is the last property.
    return [
        UnitExtra(java_hash_code("ab"[n % 2]), START_MS, b"ab"[n % 2 : n % 2 + 1] + BITS)
        for n in range(first, first + count)
    ]


def restarted(store: MessageStore, files: MemoryFiles, how: str, **changes: Any) -> MessageStore:
    if how == "stop":
        store.close()
        return opened(files, **changes)
    if how == "kill":
        return opened(files.kill(), **changes)
    return opened(files.crash(None), **changes)


def test_what_a_unit_leads_to(files: MemoryFiles) -> None:
    store = opened(files)
    store.extensions.bits_of = lambda topic, properties, store_timestamp: b"\x01\x02\x83"
    put(store, make_message(b"x", tags="a"), make_message(b"y"))
    store.checkpoint()
    unit = files.read(f"{ROOT}/consumequeue/Topic/0/{0:020d}")[:40]
    first, second = (code for _, _, code in struct.iter_unpack(">qiq", unit))
    assert (first, second) == (-(1 << 63), -(1 << 63) + 23)
    data = files.read(FIRST)
    assert len(data) == 4096
    assert data[:46] == (
        struct.pack(">hqqh", 23, 97, START_MS, 3)
        + b"\x01\x02\x83"
        + struct.pack(">hqqh", 23, 0, START_MS, 3)
        + b"\x01\x02\x83"
    )
    assert not any(data[46:])


def test_files_follow_each_other(files: MemoryFiles) -> None:
    store = opened(files)
    fill(store, 50)
    assert extras(store) == expected(50)
    store.checkpoint()
    assert extras(store) == expected(50)
    assert len(files.list(EXT)) == 3
    # Behind the last extra of a file.
    assert files.read(FIRST)[20 * 201 : 20 * 201 + 4] == b"\xff\xff\0\0"


def test_off_nothing_is_there(files: MemoryFiles) -> None:
    store = opened(files, enable_consume_queue_ext=False)
    fill(store, 3)
    store.checkpoint()
    assert extras(store) == [None] * 3
    assert [unit.tags_code for unit in store.queue_units("Topic", 0, 0, 3)] == [97, 98, 97]
    assert not files.exists(f"{ROOT}/consumequeue_ext")


def test_what_is_too_large_has_no_extra(files: MemoryFiles) -> None:
    store = opened(files)
    store.extensions.bits_of = lambda *message: bytes(4096 - 20 - 4 + 1)
    fill(store, 1)
    store.extensions.bits_of = lambda *message: bytes(4096 - 20 - 4)
    fill(store, 2)
    units = store.queue_units("Topic", 0, 0, 3)
    assert [unit.extra and len(unit.extra.bits) for unit in units] == [None, 4072, 4072]
    assert [unit.tags_code for unit in units] == [97, 97, 98]


def test_a_batch(files: MemoryFiles) -> None:
    store = opened(files)
    batch = Batch.of(BatchedMessage(0, b"%d" % n, b"n\x01%d\x02" % n) for n in range(3))
    store.append(make_message(b"0"), batch=batch)
    store.write_pending()
    store.dispatch()
    found = [extra.bits[:1] for extra in extras(store) if extra is not None]
    assert found == [b"0", b"1", b"2"]


class TestReads:
    def read(self, store: MessageStore, offset: int = 0, **wanted: Any) -> tuple[Any, ...]:
        read = store.read_queue("Topic", 0, offset, 32, 1 << 20, MessageFilter(**wanted))
        bodies = [m.body for m in read_all(store)] if read.data else []
        return read.status, read.messages, read.next_offset, len(bodies)

    def test_by_tags(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 30)
        status, messages, following, _ = self.read(store, by_unit=lambda code: code == 98)
        assert (status, messages, following) == (GetStatus.FOUND, 5, 10)

    def test_what_the_bits_rule_out_is_not_asked(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 10)
        asked = []

        def ask(properties: bytes) -> bool:
            asked.append(properties)
            return True

        status, messages, following, _ = self.read(
            store, by_properties=ask, by_extra=lambda extra, position: extra.bits[:1] == b"b"
        )
        assert (status, messages, following) == (GetStatus.FOUND, 5, 10)
        assert len(asked) == 5 and all(b"TAGS\x01b" in properties for properties in asked)

    def test_the_bits_rule_out_all(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 10)
        found = self.read(
            store, by_properties=lambda p: True, by_extra=lambda extra, position: False
        )
        assert found[:3] == (GetStatus.NO_MATCHED_MESSAGE, 0, 10)

    def test_messages_from_before_have_none(self, files: MemoryFiles) -> None:
        store = opened(files, enable_consume_queue_ext=False)
        fill(store, 4)
        store.close()
        store = opened(files)
        fill(store, 4, 4)
        assert extras(store) == [None] * 4 + expected(4, 4)
        found = self.read(
            store, by_properties=lambda p: True, by_extra=lambda extra, position: False
        )
        assert found[:3] == (GetStatus.FOUND, 4, 8)

    def test_an_extra_that_is_lost_rules_out_nothing(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 10)
        store.checkpoint()
        files.open(FIRST).truncate(0)
        files.open(FIRST).truncate(4096)
        assert self.read(store, by_unit=lambda code: code == 98)[1] == 10
        assert (
            self.read(store, by_properties=lambda p: True, by_extra=lambda extra, position: False)[
                1
            ]
            == 10
        )


class TestStarts:
    def test_what_is_safe_is_durable(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 7)
        store.checkpoint()
        store = opened(files.crash(None), enable_consume_queue_ext=False)
        assert extras(store) == expected(7)

    @pytest.mark.parametrize("how", ["stop", "kill", "power"])
    @pytest.mark.parametrize("kept", [0, 7, 45])
    def test_it_goes_on(self, files: MemoryFiles, how: str, kept: int) -> None:
        store = opened(files)
        fill(store, kept)
        store.checkpoint()
        fill(store, 25, kept)
        store = restarted(store, files, how)
        found = extras(store)
        assert found[:kept] == expected(kept)
        fill(store, 30, kept + 25)
        store.checkpoint()
        assert extras(store)[kept + 25 :] == expected(30, kept + 25)
        assert [m.body for m in read_all(store)] == [b"%d" % n for n in range(kept + 55)]

    @pytest.mark.parametrize("extended", [False, True])
    @pytest.mark.parametrize("of_stock", [False, True])
    def test_lost_files_are_built_again(
        self, files: MemoryFiles, extended: bool, of_stock: bool
    ) -> None:
        store = opened(files)
        fill(store, 45)
        store.close()
        files.remove_tree(f"{ROOT}/consumequeue_ext")
        if of_stock:
            files.remove(f"{ROOT}/checkpoint")
        store = opened(files, enable_consume_queue_ext=extended)
        assert store.report is not None
        assert of_stock or any("extensions" in note for note in store.report.notes)
        # What expressions asked when the messages came is not known any more.
        built = [extra and extra.bits for extra in extras(store)]
        assert built == [b"" if extended else None] * 45

    def test_switched_off_it_is_read_and_goes_on_without(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 5)
        store.close()
        store = opened(files, enable_consume_queue_ext=False)
        fill(store, 5, 5)
        assert extras(store) == expected(5) + [None] * 5
        store.close()
        store = opened(files)
        fill(store, 5, 10)
        store.checkpoint()
        assert extras(store) == expected(5) + [None] * 5 + expected(5, 10)

    def test_far_behind_extras_are_not_looked_for(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 5)
        store.close()
        store = opened(files, enable_consume_queue_ext=False)
        fill(store, 400, 5)
        store.close()
        store = opened(files)
        fill(store, 5, 405)
        assert extras(store) == expected(5) + [None] * 400 + expected(5, 405)
        store.checkpoint()
        assert files.list(EXT) == [f"{0:020d}", f"{4096:020d}"]

    def test_another_size_of_files_is_refused(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 45)
        store.close()
        with pytest.raises(StoreError, match="mappedFileSizeConsumeQueueExt"):
            opened(files, mapped_file_size_consume_queue_ext=8192)

    def test_those_of_queues_that_are_gone_go(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 45)
        store.close()
        files.remove_tree(f"{ROOT}/consumequeue/Topic")
        files.remove_tree(f"{ROOT}/commitlog")
        files.remove(f"{ROOT}/checkpoint")
        store = opened(files)
        assert not files.exists(EXT)
        fill(store, 3)
        assert extras(store) == expected(3)


def test_a_cut(files: MemoryFiles) -> None:
    store = opened(files)
    fill(store, 50)
    position = store.queue_units("Topic", 0, 33, 1)[0].position
    cut(store, position)
    assert extras(store) == expected(33)
    assert len(files.list(EXT)) == 2
    assert not any(files.read(f"{EXT}/{4096:020d}")[13 * 201 :])
    fill(store, 20, 33)
    store.checkpoint()
    assert extras(store) == expected(53)


def test_a_cut_of_everything(files: MemoryFiles) -> None:
    store = opened(files)
    fill(store, 50)
    cut(store, 0)
    assert files.list(EXT) == []
    fill(store, 3)
    assert extras(store) == expected(3)


def test_old_files_go_with_their_messages(files: MemoryFiles) -> None:
    clock = ManualClock()
    store = opened(files, clock, file_reserved_time=1)
    for first in range(0, 200, 10):
        fill(store, 10, first)
    store.checkpoint()
    assert len(files.list(EXT)) == 10
    clock.now_ms += 2 * HOUR_MS
    fill(store, 10, 200)
    for _ in range(12):
        store.checkpoint()
        list(store.clean(clock.now_ms, at_any_hour=True))
    low = store.min_queue_offset("Topic", 0)
    assert low > 100
    assert len(files.list(EXT)) < 5
    assert all(extra is not None for extra in extras(store, low))
    store = opened(files.kill(), clock, file_reserved_time=1)
    assert all(extra is not None for extra in extras(store, low))


class TestDeletedTopics:
    def test_it_goes_with_the_queue(self, files: MemoryFiles) -> None:
        store = opened(files)
        fill(store, 30)
        store.checkpoint()
        store.remove_topics(["Topic"])
        assert not files.exists(EXT)
        fill(store, 5)
        assert extras(store) == expected(5)
        store.checkpoint()
        assert files.list(f"{ROOT}/deletedqueues/0") == []
        assert len(files.list(EXT)) == 1

    @pytest.mark.parametrize("seed", range(20))
    def test_it_comes_back_with_it(self, files: MemoryFiles, seed: int) -> None:
        """The power may take the note of a deletion."""
        store = opened(files)
        fill(store, 30)
        store.checkpoint()
        store.remove_topics(["Topic"])
        store = opened(files.crash(seed))
        if store.max_queue_offset("Topic", 0):
            found = extras(store)
            assert len(found) == 30
            built_again = [UnitExtra(e.tags_code, e.store_timestamp) for e in expected(30) if e]
            assert found in (expected(30), built_again)
        fill(store, 3)
        assert extras(store)[-3:] == expected(3)


def test_a_disk_without_room(files: MemoryFiles) -> None:
    """As the queue's units, extras wait in memory until they can be written."""
    disk = FaultyFiles(files)
    store = opened(disk)
    fill(store, 3)
    store.checkpoint()
    disk.faults.append(Fault("pwrite", "consumequeue_ext"))
    fill(store, 30, 3)
    with pytest.raises(NotWritableError):
        store.checkpoint()
    assert extras(store) == expected(33)
    disk.faults.clear()
    store.checkpoint()
    store = opened(files.crash(None))
    assert extras(store) == expected(33)


def test_what_could_not_be_dispatched_leaves_nothing(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(files)
    fill(store, 3)
    store.append(make_message(b"3", tags="b"))
    store.write_pending()
    with monkeypatch.context() as patched, pytest.raises(NotWritableError):
        patched.setattr(store._index, "add", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        store.dispatch()
    assert extras(store) == expected(3)
    while store.dispatch():
        pass
    assert extras(store) == expected(4)


def test_further_queues_have_none(files: MemoryFiles) -> None:
    store = opened(files, enable_multi_dispatch=True, enable_lmq=True)
    put(store, make_message(b"x", properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"))
    (unit,) = store.queue_units("%LMQ%a", 0, 0, 1)
    assert unit.extra is None
    (extra,) = extras(store)
    assert extra is not None
