"""Bodies that producers packed: not every client of gRPC reads zlib, and none LZ4 and Zstandard."""

from __future__ import annotations

from contextlib import suppress

from twisted.internet.defer import Deferred

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.compression import (
    DEFAULT_BODY_LIMIT,
    BodyTooLarge,
    CompressionType,
    compression_type,
    decompress,
)
from rocketmq_tw.message.model import COMPRESSED, StoredMessage
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.runtime.fairness import SerialRoundRobin
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.structs import msgspec

#: Bytes of a body, packed and unpacked, that the reactor unpacks at once: some ms of its time.
_MOST_PACKED = 64 * 1024
MOST_UNPACKED = 1024 * 1024


class Unpacking:
    """Unpacks bodies, large ones in a thread, one at a time, one of each host after the other: 1 KB
    may unpack to 40 MiB."""

    def __init__(self, config: ProxyConfig, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._large = SerialRoundRobin[str]()
        # Producers check what they pack, and their limit may be larger than the proxy's.
        most = 2 * config.max_message_size or DEFAULT_BODY_LIMIT
        self._most = max(min(most, DEFAULT_BODY_LIMIT), MOST_UNPACKED)

    async def unpacked(self, stored: StoredMessage, address: str) -> StoredMessage:
        """Returns a message with its body unpacked for a client at `address`; as it is where it is
        not packed, is damaged, unpacks to more than twice `maxMessageSize`, or is gzip, which all
        clients read and stock's proxies store."""
        try:
            kind = compression_type(stored.sys_flag)
            if kind is None:
                return stored
            content = await self._content(stored.body, kind, address)
        except ValueError:
            return stored
        return msgspec.structs.replace(stored, body=content, sys_flag=stored.sys_flag & ~COMPRESSED)

    async def _content(self, body: bytes, kind: CompressionType, address: str) -> bytes:
        if len(body) <= _MOST_PACKED:
            with suppress(BodyTooLarge):
                return decompress(body, kind, MOST_UNPACKED)
        large: Deferred[bytes] = self._large.run(
            host_of(address), lambda: self._in_thread(lambda: decompress(body, kind, self._most))
        )
        return await large
