"""Small stores on any file system, for tests: files roll after a few messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFiles, NoFileError
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.store.message_store import MessageStore

ROOT = "/store"
START_MS = 1_700_000_000_000


class ManualClock:
    """Milliseconds that only a test moves."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def small_config(**changes: object) -> MessageStoreConfig:
    """Files of 4 KiB, queues of 10 units a file, an index of 40 entries a file."""
    small: dict[str, Any] = {
        "store_path_root_dir": ROOT,
        "mapped_file_size_commit_log": 4096,
        "mapped_file_size_consume_queue": 200,
        "max_hash_slot_num": 16,
        "max_index_num": 40,
        "max_message_size": 2048,
    }
    return MessageStoreConfig(**small | changes)


def open_store(
    files: IFiles,
    clock: ManualClock | None = None,
    *,
    is_copy: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda text: None,
    **changes: object,
) -> MessageStore:
    """A loaded store below `ROOT`."""
    config = small_config(**changes)
    store = MessageStore(config, files, clock or ManualClock(), is_copy=is_copy, warn=warn)
    store.load()
    return store


def make_message(
    body: bytes = b"body",
    *,
    topic: str = "Topic",
    queue_id: int = 0,
    tags: str = "",
    keys: str = "",
    properties: bytes = b"",
    sys_flag: int = 0,
) -> StoredMessage:
    """A message on its way to the store."""
    if tags:
        properties += f"TAGS\x01{tags}\x02".encode()
    if keys:
        properties += f"KEYS\x01{keys}\x02".encode()
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties,
        sys_flag=sys_flag,
        born_host=("127.0.0.1", 40000),
        store_host=("127.0.0.1", 10911),
    )


def put(store: MessageStore, *messages: StoredMessage) -> list[int]:
    """Appends, writes, syncs and dispatches; returns the log offsets."""
    offsets = [store.append(message).physical_offset for message in messages]
    store.write_pending()
    store.fsync()
    store.dispatch()
    return offsets


def cut(store: MessageStore, offset: int) -> int:
    """Truncates the store; returns how many steps that took."""
    return sum(1 for _ in store.truncate_to(offset))


def queues_of(store: MessageStore) -> dict[str, set[int]]:
    """Topics with the ids of their queues that have files."""
    found = {topic: set(store.queue_ids(topic)) for topic in store.queue_topics()}
    return {topic: ids for topic, ids in found.items() if ids}


def read_all(store: MessageStore, topic: str = "Topic", queue_id: int = 0) -> list[StoredMessage]:
    """Everything readable in a queue, in order."""
    found: list[StoredMessage] = []
    offset = store.min_queue_offset(topic, queue_id)
    end = store.max_queue_offset(topic, queue_id)
    while offset < end:
        read = store.read_queue(topic, queue_id, offset, 32, 1 << 20)
        found += decode_records(read.data)
        if read.next_offset <= offset:
            raise AssertionError(f"no progress at {offset}: {read}")
        offset = read.next_offset
    return found


def by_key(
    store: MessageStore, topic: str, key: str, limit: int, begin: int, end: int
) -> list[int]:
    """The log offsets that the store's index has for a key."""
    found: list[int] = []
    for _ in store.search_by_key(topic, key, limit, begin, end, found):
        pass
    return found


def stored_files(files: IFiles, path: str = ROOT) -> Iterator[tuple[str, bytes]]:
    """Yields the path and the content of each file below a directory."""
    names = files.list(path)
    if not names:
        with suppress(NoFileError):
            yield path, files.read(path)
    for name in names:
        yield from stored_files(files, f"{path}/{name}")
