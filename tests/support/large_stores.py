"""Stores on the disk of as many messages as a test asks for."""

from __future__ import annotations

from pathlib import Path

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.storecheck.layout import Sizes
from tests.support.stores import ManualClock, make_message, put, small_config

SIZES = Sizes(queue=6_000_000, index_slots=1024, index_entries=1024)
#: The same as a broker's configuration says it.
CONFIG = """\
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=6000000
maxHashSlotNum=1024
maxIndexNum=1024
"""


def make_large_store(root: Path, messages: int, queues: int = 2) -> None:
    """Makes a store of that many messages, a multiple of 500, in so many queues; each message has
    a key."""
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
        put(
            store,
            *(
                make_message(bytes(600), queue_id=number % queues, tags="a", keys=f"k{number}")
                for number in range(first, first + 500)
            ),
        )
    store.close()
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(
        '{"topicConfigTable":{"Topic":{"topicName":"Topic"}}}'
    )
