"""Bodies that brokers store packed as clients of gRPC cannot read them: LZ4 and Zstandard."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.compression import (
    DEFAULT_BODY_LIMIT,
    BodyTooLarge,
    compression_type,
    decompress,
)
from rocketmq_tw.message.model import COMPRESSED, StoredMessage
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.proxy.messaging.messages import MOST_UNPACKED, READ_BY_CLIENTS
from rocketmq_tw.runtime.fairness import SerialRoundRobin
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.structs import msgspec


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
        """Returns a message with its body unpacked for a client at `address`; as it is where
        clients read it so, and where it is damaged or unpacks to more than twice
        `maxMessageSize`."""
        body = stored.body
        try:
            kind = compression_type(stored.sys_flag)
            if kind is None or kind in READ_BY_CLIENTS:
                return stored
            try:
                content = decompress(body, kind, MOST_UNPACKED)
            except BodyTooLarge:
                large: Deferred[bytes] = self._large.run(
                    host_of(address),
                    lambda: self._in_thread(lambda: decompress(body, kind, self._most)),
                )
                content = await large
        except ValueError:
            return stored
        return msgspec.structs.replace(stored, body=content, sys_flag=stored.sys_flag & ~COMPRESSED)
