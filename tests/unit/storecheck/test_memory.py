"""The memory of a check does not grow with the store."""

import gc
import tracemalloc
from pathlib import Path

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.storecheck.check import check_store
from rocketmq_tw.storecheck.layout import Sizes, Store
from tests.support.stores import ManualClock, make_message, put, small_config

SIZES = Sizes(queue=6_000_000, index_slots=1024, index_entries=8192)
#: Bytes that a check of a store four times as large may take more: a list of where its messages
#: are would be larger.
MORE = 16_384


def make(root: Path, messages: int) -> Store:
    config = small_config(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=SIZES.queue,
        max_hash_slot_num=SIZES.index_slots,
        max_index_num=SIZES.index_entries,
        max_message_size=1 << 16,
    )
    store = MessageStore(config, PosixFiles(), ManualClock())
    store.load()
    for first in range(0, messages, 500):
        some = range(first, first + 500)
        put(
            store, *(make_message(bytes(600), queue_id=n % 2, tags="a", keys=f"k{n}") for n in some)
        )
    store.close()
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"Topic":{"topicName":"Topic"}}}'
    )
    return Store(str(root), SIZES)


def peak_of_a_check(store: Store, messages: int) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        summary, findings = check_store(store, lambda finding: None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (summary.records, findings.count) == (messages, 0)
    return peak


def test_a_check_of_a_larger_store_takes_no_more_memory(tmp_path: Path) -> None:
    small, large = make(tmp_path / "small", 2000), make(tmp_path / "large", 8000)
    # What is made once in a process.
    peak_of_a_check(small, 2000)
    assert peak_of_a_check(large, 8000) < peak_of_a_check(small, 2000) + MORE
