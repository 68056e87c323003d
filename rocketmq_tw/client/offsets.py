"""At which offset a consumer begins with a queue, and where its offsets are kept: at the broker for
a group, in a file for a broadcast."""

from typing import Protocol

from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.client.settings import ConsumerSettings, StartFrom
from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.message.logic_queues import LOGIC_BROKER
from rocketmq_tw.message.names import RETRY_PREFIX
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.queues import MessageQueue


class OffsetStore(Protocol):
    """Reads and keeps the offset at which a queue goes on."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Returns the offset to go on at; None where none was kept. Raises what the broker's answer
        or the connection does."""

    async def write(self, offsets: dict[MessageQueue, int]) -> None:
        """Keeps the offsets to go on at; raises as `read` does, or `OSError`."""


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
        offset = self._offsets.get(_key(queue))
        if offset is None and queue.broker_name == LOGIC_BROKER:
            return self._kept_under_brokers(queue)
        return offset

    async def write(self, offsets: dict[MessageQueue, int]) -> None:
        self._offsets.update({_key(queue): offset for queue, offset in offsets.items()})
        if self._path is not None:
            write_atomic(self._files, self._path, msgspec.json.encode(self._offsets))

    def _kept_under_brokers(self, queue: MessageQueue) -> int | None:
        """Returns the offset of a logic queue under the name of a broker, as older versions kept
        it; the furthest, since each broker that hosted it was asked for all of it."""
        start, end = f"{queue.topic}@", f"@{queue.queue_id}"
        return max(
            (
                offset
                for key, offset in self._offsets.items()
                if key.startswith(start) and key.endswith(end)
            ),
            default=None,
        )


async def first_offset(
    queue: MessageQueue, kept: OffsetStore, reader: QueuePuller, settings: ConsumerSettings
) -> int:
    """Returns where to begin with a queue: at the kept offset, or else where `settings` says. A
    retry queue is read from its start: it has only what the group gave back."""
    offset = await kept.read(queue)
    if offset is not None and offset >= 0:
        return offset
    if queue.topic.startswith(RETRY_PREFIX) or settings.start_from is StartFrom.FIRST:
        return 0
    if settings.start_from is StartFrom.TIMESTAMP:
        return await reader.search_offset(queue, settings.start_timestamp_ms)
    return await reader.max_offset(queue)


def _key(queue: MessageQueue) -> str:
    return f"{queue.topic}@{queue.broker_name}@{queue.queue_id}"
