"""A plain log that was there before a DLedger group."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from rocketmq_tw.broker.writing.group_log import end_older_log
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.checkpoint import read_checkpoint, write_checkpoint
from rocketmq_tw.store.errors import DamagedStoreError
from tests.support.raft_message_store import RaftStore
from tests.support.stores import (
    ROOT,
    START_MS,
    make_message,
    open_store,
    put,
    read_all,
    small_config,
)


def _end_plain_log(files: MemoryFiles, count: int = 40) -> Any:
    """A plain log with so many messages, to which a group's was added, of the host returned."""
    store = open_store(files)
    put(store, *[make_message(b"%d" % n + bytes(200)) for n in range(count)])
    store.close()
    host: Any = SimpleNamespace(
        store_config=small_config(enable_dledger_commit_log=True),
        files=files,
        now_ms=lambda: START_MS,
    )
    end_older_log(host)
    return host


def _move_away(files: MemoryFiles, kept: str) -> None:
    """Moves all of the store away but what `kept` names, as a refusal advises."""
    files.make_dirs("/away")
    for name in files.list(ROOT):
        if name not in kept.split(" and "):
            files.rename(f"{ROOT}/{name}", f"/away/{name}")


def test_it_is_gone_back_to_as_the_refusal_says() -> None:
    files = MemoryFiles()
    _end_plain_log(files)
    checkpoint = read_checkpoint(files, f"{ROOT}/checkpoint")
    # As the group's messages leave it.
    checkpoint.safe_offset += 50_000
    write_checkpoint(files, f"{ROOT}/checkpoint", checkpoint)
    files.make_dirs(f"{ROOT}/dledger-n0/data")
    with pytest.raises(DamagedStoreError, match="set enableDLegerCommitLog=true, or") as refused:
        open_store(files)
    found = re.search(f"all of {ROOT} but (.*) is moved away$", str(refused.value))
    assert found is not None and found[1] == "commitlog and config"
    _move_away(files, found[1])
    store = open_store(files)
    assert len(read_all(store)) == 40
    assert store.append(make_message()).queue_offset == 40


def test_a_store_that_only_a_group_wrote_begins_anew_as_the_refusal_says() -> None:
    files = MemoryFiles()
    group = RaftStore(files)
    group.lead()
    for n in range(20):
        group.store.append(make_message(b"%d" % n))
    group.settle()
    group.close()
    with pytest.raises(
        DamagedStoreError, match=f"DLedger group is in {ROOT}/dledger-n0"
    ) as refused:
        open_store(files)
    found = re.search(f"all of {ROOT} but (.*) is moved away$", str(refused.value))
    assert found is not None and found[1] == "config"
    group = RaftStore(files)
    assert len(read_all(group.store)) == 20
    group.close()
    _move_away(files, found[1])
    assert open_store(files).append(make_message()).queue_offset == 0


@pytest.mark.parametrize("clean", [True, False])
def test_it_is_ended_again_where_the_member_was_removed(clean: bool) -> None:
    """As docs/raft.md says for a store that is refused: its checkpoint tells of the group's log."""
    files = MemoryFiles()
    host = _end_plain_log(files)
    end = read_checkpoint(files, f"{ROOT}/checkpoint").safe_offset
    path = f"{ROOT}/checkpoint"
    checkpoint = read_checkpoint(files, path)
    checkpoint.safe_offset = end + 50_000
    write_checkpoint(files, path, checkpoint)
    if not clean:
        files.open(f"{ROOT}/abort", create=True)
    end_older_log(host)
    again = open_store(files)
    assert again.end_offset >= end
    again.close()


@pytest.mark.parametrize("count", range(37, 45))
def test_it_ends_with_the_file_of_its_last_message(count: int) -> None:
    """Wherever that is, and whether the next file was made in advance or not."""
    files = MemoryFiles()
    _end_plain_log(files, count)
    starts = sorted(map(int, files.list(f"{ROOT}/commitlog")))
    again = open_store(files)
    last = again.last_record_offset
    assert starts[-1] == last - last % 4096
    assert again.end_offset == starts[-1] + 4096
    assert len(read_all(again)) == count
