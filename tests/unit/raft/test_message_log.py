"""A message store on a Raft log: places, what readers see, starts, files that go."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.message.batch import Batch, BatchedMessage
from rocketmq_tw.message.model import TRANSACTION_PREPARED
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.raft.store.format import decode_entry
from rocketmq_tw.store.errors import IllegalMessageError, NotWritableError
from rocketmq_tw.store.interface import GetStatus
from tests.support.raft_message_store import FILE_SIZE, RaftStore
from tests.support.stores import make_message


def bodies_of(raft: RaftStore, topic: str = "Topic", queue_id: int = 0) -> list[bytes]:
    """The bodies of a queue's messages, as readers get them."""
    bodies: list[bytes] = []
    store = raft.store
    offset = store.min_queue_offset(topic, queue_id)
    while offset < store.max_queue_offset(topic, queue_id):
        read = store.read_queue(topic, queue_id, offset, 32, 1 << 20)
        assert read.status is GetStatus.FOUND
        bodies += [message.body for message in decode_records(read.data)]
        offset = read.next_offset
    return bodies


def test_records_say_where_their_bodies_stand_in_the_entries() -> None:
    raft = RaftStore(MemoryFiles())
    raft.lead()
    first = raft.store.append(make_message(b"one"))
    second = raft.store.append(make_message(b"two"))
    raft.settle()
    assert first.physical_offset == 48
    assert second.physical_offset == first.end_offset + 48
    entry = raft.log.member.read(1)
    assert entry.pos + 48 == second.physical_offset
    (message,) = decode_records(entry.body)
    assert (message.physical_offset, message.queue_offset) == (second.physical_offset, 1)
    assert bodies_of(raft) == [b"one", b"two"]
    assert raft.store.message_at(second.physical_offset).body == b"two"


def test_nothing_is_read_before_it_is_committed() -> None:
    raft = RaftStore(MemoryFiles())
    raft.lead()
    raft.store.append(make_message(b"one"))
    raft.store.write_pending()
    raft.store.dispatch()
    assert bodies_of(raft) == []
    raft.settle()
    assert bodies_of(raft) == [b"one"]


def test_each_message_of_a_batch_has_an_entry() -> None:
    raft = RaftStore(MemoryFiles())
    raft.lead()
    batch = Batch.of(BatchedMessage(0, body * 1500, b"") for body in (b"a", b"b", b"c"))
    appended = raft.store.append(make_message(b""), batch=batch)
    raft.settle()
    assert [body[:1] for body in bodies_of(raft)] == [b"a", b"b", b"c"]
    # The third one did not fit into the first file.
    entries = [raft.log.member.read(index) for index in range(3)]
    assert entries[2].pos == FILE_SIZE and appended.end_offset == entries[2].end_pos
    ids = appended.message_ids.split(",")
    assert [int(one[-16:], 16) for one in ids] == [entry.pos + 48 for entry in entries]


def test_messages_across_files_are_found_again_by_every_kind_of_start() -> None:
    files = MemoryFiles()
    raft = RaftStore(files)
    raft.lead()
    wanted = [b"%d" % number * 300 for number in range(30)]
    for body in wanted:
        raft.store.append(make_message(body, keys="k", tags="t"))
        raft.settle()
    raft.store.append(make_message(b"half", sys_flag=TRANSACTION_PREPARED))
    raft.settle()
    assert bodies_of(raft) == wanted
    raft.close()
    clean = RaftStore(files)
    assert clean.report.clean and clean.report.records == 0
    assert bodies_of(clean) == wanted
    clean.close()
    # Neither queues nor index.
    files.remove_tree("/store/consumequeue")
    files.remove_tree("/store/index")
    built = RaftStore(files)
    assert bodies_of(built) == wanted
    found: list[int] = []
    for _ in built.store.search_by_key("Topic", "k", 64, 0, 1 << 62, found):
        pass
    assert len(found) == 30
    built.close()


def test_a_start_without_the_end_of_the_last_one() -> None:
    files = MemoryFiles()
    raft = RaftStore(files)
    raft.lead()
    for number in range(20):
        raft.store.append(make_message(b"%d" % number))
    raft.settle()
    for left in (files.crash(), files.crash(seed=1), files.kill()):
        again = RaftStore(left)
        again.lead()
        again.settle()
        assert bodies_of(again) == [b"%d" % number for number in range(20)]


def test_only_a_leader_appends() -> None:
    raft = RaftStore(MemoryFiles())
    with pytest.raises(NotWritableError, match="does not lead"):
        raft.store.append(make_message())
    raft.lead()
    with pytest.raises(IllegalMessageError):
        raft.store.append(make_message(b"x" * FILE_SIZE))


def test_what_a_leader_loses_gives_its_places_back() -> None:
    raft = RaftStore(MemoryFiles())
    raft.lead()
    raft.store.append(make_message(b"one"))
    raft.settle()
    end = raft.store.end_offset
    raft.store.append(make_message(b"lost"))
    raft.log.follow()
    raft.store.log_shrank()
    assert raft.store.end_offset == end
    # The sender must hear that it is gone, even where this member leads again already.
    raft.lead()
    with pytest.raises(NotWritableError, match="does not lead"):
        raft.store.write_pending()
    assert raft.store.append(make_message(b"two")).queue_offset == 1
    raft.settle()
    assert bodies_of(raft) == [b"one", b"two"]


def test_what_was_appended_in_one_term_is_not_written_in_another() -> None:
    raft = RaftStore(MemoryFiles())
    raft.lead()
    raft.store.append(make_message(b"one"))
    raft.settle()
    # Leads again, and nobody told the log of the election between.
    raft.new_term()
    assert raft.node.is_leader
    raft.store.append(make_message(b"stale"))
    with pytest.raises(NotWritableError, match="the term is 1 now"):
        raft.store.write_pending()
    raft.lead()
    assert raft.store.append(make_message(b"two")).queue_offset == 1
    raft.settle()
    assert bodies_of(raft) == [b"one", b"two"]


def test_old_files_go_and_the_log_begins_behind_them() -> None:
    files = MemoryFiles()
    raft = RaftStore(files, file_reserved_time=0)
    raft.lead()
    for number in range(30):
        raft.store.append(make_message(b"%02d" % number * 200))
        raft.settle()
    raft.store.checkpoint()
    starts = raft.log.file_starts
    assert len(starts) > 3
    removed = sum(raft.store.clean(1 << 50, at_any_hour=True))
    raft.run()
    assert removed >= len(starts) - 2
    left = files.list(f"{raft.directory}/data")
    assert len(left) <= 2 and raft.store.min_physical_offset == int(min(left))
    kept = bodies_of(raft)
    assert 0 < len(kept) < 30 and kept[-1] == b"29" * 200
    raft.close()
    again = RaftStore(files, file_reserved_time=0)
    assert bodies_of(again) == kept
    assert decode_entry(raft_entry(again)).pos == again.store.min_physical_offset


def test_retention_looks_at_the_disk_of_the_group_s_files(tmp_path: Path) -> None:
    """There is no directory of a plain log on a real disk."""
    raft = RaftStore(PosixFiles(), store_path_root_dir=str(tmp_path))
    assert not (tmp_path / "commitlog").exists()
    assert sum(raft.store.clean(1 << 50, at_any_hour=True)) == 0
    assert raft.store.log_directory == f"{raft.directory}/data"
    raft.close()


def raft_entry(raft: RaftStore) -> bytes:
    """The bytes of the first entry that is left."""
    begin = raft.log.min_offset
    size = int.from_bytes(raft.log.peek(8, begin)[4:], "big")
    return raft.log.peek(size, begin)


def test_only_what_a_leader_appended_is_its_own() -> None:
    """Followers have entries of other members' disks, and a start has those of its own."""
    files = MemoryFiles()
    raft = RaftStore(files)
    raft.lead()
    first = raft.store.append(make_message(b"one"))
    raft.settle()
    assert raft.log.own_from <= first.physical_offset
    raft.log.follow()
    assert raft.log.own_from == raft.log.end_offset
    raft.store.close()
    again = RaftStore(files)
    again.lead()
    assert again.log.own_from == again.log.end_offset > 0
