"""Where a consumer's offsets are kept: at the broker for a group, in a file for a broadcast."""

from typing import Protocol

import msgspec

from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.wire.bodies.queues import MessageQueue


class OffsetStore(Protocol):
    """Reads and keeps the offset at which a queue goes on."""

    async def read(self, queue: MessageQueue) -> int | None: ...

    async def write(self, offsets: dict[MessageQueue, int]) -> None: ...


class BrokerOffsets:
    """Offsets of a group, at the master of each queue."""

    def __init__(self, reader: QueuePuller) -> None:
        self._reader = reader

    async def read(self, queue: MessageQueue) -> int | None:
        return await self._reader.committed_offset(queue)

    async def write(self, offsets: dict[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            await self._reader.commit_offset(queue, offset)


class FileOffsets:
    """Offsets of one consumer of a broadcast, in a JSON file of ours; in memory without a path."""

    def __init__(self, path: str | None, files: IFiles | None = None) -> None:
        self._path = path
        self._files = files or PosixFiles()
        self._offsets: dict[str, int] = {}
        if path is not None and self._files.exists(path):
            self._offsets = msgspec.json.decode(self._files.read(path), type=dict[str, int])

    async def read(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(_key(queue))

    async def write(self, offsets: dict[MessageQueue, int]) -> None:
        self._offsets.update({_key(queue): offset for queue, offset in offsets.items()})
        if self._path is not None:
            write_atomic(self._files, self._path, msgspec.json.encode(self._offsets))


def _key(queue: MessageQueue) -> str:
    return f"{queue.topic}@{queue.broker_name}@{queue.queue_id}"
