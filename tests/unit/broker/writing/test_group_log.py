"""A plain log that was there before a DLedger group."""

from types import SimpleNamespace
from typing import Any

import pytest

from rocketmq_tw.broker.writing.group_log import end_older_log
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.checkpoint import read_checkpoint, write_checkpoint
from tests.support.stores import ROOT, START_MS, make_message, open_store, put, small_config


@pytest.mark.parametrize("clean", [True, False])
def test_it_is_ended_again_where_the_member_was_removed(clean: bool) -> None:
    """As docs/raft.md says for a store that is refused: its checkpoint tells of the group's log."""
    files = MemoryFiles()
    store = open_store(files)
    put(store, *[make_message(b"x" * 200) for _ in range(40)])
    end = store.end_offset
    store.close()
    host: Any = SimpleNamespace(
        store_config=small_config(enable_dledger_commit_log=True),
        files=files,
        now_ms=lambda: START_MS,
    )
    end_older_log(host)
    path = f"{ROOT}/checkpoint"
    checkpoint = read_checkpoint(files, path)
    assert checkpoint is not None
    checkpoint.safe_offset = end + 50_000
    write_checkpoint(files, path, checkpoint)
    if not clean:
        files.open(f"{ROOT}/abort", create=True)
    end_older_log(host)
    again = open_store(files)
    assert again.end_offset >= end
    again.close()
