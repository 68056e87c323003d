"""Clients that are only there: connections, a heartbeat on each."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable

from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.frame import FrameDecoder
from tests.support.heartbeats import heartbeat_of, push_consumer
from tests.support.running import Closing
from tools.big.store import Scale

#: Requests under way.
_WINDOW = 64


class Crowd(Closing):
    """`scale.connections` clients, each a producer and a member of one group."""

    def __init__(self, address: str, scale: Scale) -> None:
        host, port = address.rsplit(":", 1)
        self._sockets = [
            socket.create_connection((host, int(port)), 60) for _ in range(scale.connections)
        ]
        self._frames = [_heartbeat(number, scale) for number in range(scale.connections)]

    def beat(self) -> None:
        """A heartbeat of each client; returns once all are answered."""
        with selectors.DefaultSelector() as selector:
            waiting = iter(zip(self._sockets, self._frames, strict=True))
            self._send(selector, waiting, _WINDOW)
            while selector.get_map():
                for key, _ in selector.select(60):
                    # Brokers tell members of a group of each other, too.
                    frames = key.data.feed(key.fileobj.recv(1 << 16))  # type: ignore[union-attr]
                    if any(decode_command(frame).is_response for frame in frames):
                        selector.unregister(key.fileobj)
                        self._send(selector, waiting, 1)

    @staticmethod
    def _send(
        selector: selectors.BaseSelector,
        waiting: Iterable[tuple[socket.socket, bytes]],
        count: int,
    ) -> None:
        for _, (client, frame) in zip(range(count), waiting, strict=False):
            client.sendall(frame)
            selector.register(client, selectors.EVENT_READ, FrameDecoder())

    def close(self) -> None:
        for client in self._sockets:
            client.close()


def _heartbeat(number: int, scale: Scale) -> bytes:
    # All members of a group want the same.
    group, topic = f"big-group-{number % scale.groups:05}", number % scale.groups % scale.topics
    consumer = push_consumer(
        group, f"big-topic-{topic:05}", consume_from_where="CONSUME_FROM_LAST_OFFSET"
    )
    data = heartbeat_of(
        f"10.0.{number >> 8}.{number & 255}@{number}",
        consumer,
        producer=f"big-producers-{number % scale.groups}",
    )
    request = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data))
    return encode_command(request)
