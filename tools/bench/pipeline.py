"""A load generator that costs next to nothing: frames made before, sent with several under way.

One process of plain sockets; an answer is only cut out and counted, and its code looked at.
"""

from __future__ import annotations

import selectors
import socket
import time

from rocketmq_tw.wire.command import decode_command, encode_command
from rocketmq_tw.wire.frame import FrameDecoder
from tests.support.load import send_request

#: What a topic has that a stock producer's first send made.
_QUEUES = 4
_FRAMES = 1024


class _Sender:
    """One connection with its frames and the times at which they left."""

    def __init__(self, address: str, frames: list[bytes]) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent: dict[int, float] = {}
        self._decoder = FrameDecoder()
        self._frames = frames
        self._next = 0

    def send(self, count: int) -> None:
        """The next `count` frames; an opaque comes again only after a thousand others."""
        now = time.perf_counter()
        parts = []
        for _ in range(count):
            number = self._next % len(self._frames)
            parts.append(self._frames[number])
            self.sent[number] = now
            self._next += 1
        self.socket.sendall(b"".join(parts))

    def receive(self) -> tuple[list[float], int]:
        """Latencies in seconds of what was answered, and how many answers were refusals."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed the connection")
        now = time.perf_counter()
        taken, refused = [], 0
        for frame in self._decoder.feed(data):
            answer = decode_command(frame)
            taken.append(now - self.sent.pop(answer.opaque))
            refused += answer.code != 0
        return taken, refused


def _frames(topic: str, size: int) -> list[bytes]:
    frames = []
    for number in range(_FRAMES):
        request = send_request(topic, number % _QUEUES, b"x" * size, queues=_QUEUES)
        request.ext_fields["i"] = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02"
        request.opaque = number
        frames.append(encode_command(request))
    return frames


def pipelined_sends(
    address: str, topic: str, *, connections: int, window: int, seconds: float, size: int = 128
) -> dict[str, float]:
    """Count, failures, seconds and percentiles in microseconds, as the Java generator gives."""
    senders = [_Sender(address, _frames(topic, size)) for _ in range(connections)]
    latencies: list[float] = []
    failed = 0
    with selectors.DefaultSelector() as selector:
        for sender in senders:
            selector.register(sender.socket, selectors.EVENT_READ, sender)
        started = time.perf_counter()
        for sender in senders:
            sender.send(window)
        while selector.get_map():
            for key, _ in selector.select(10):
                taken, refused = key.data.receive()
                latencies += taken
                failed += refused
                if time.perf_counter() - started < seconds:
                    key.data.send(len(taken))
                elif not key.data.sent:
                    selector.unregister(key.data.socket)
        elapsed = time.perf_counter() - started
    for sender in senders:
        sender.socket.close()
    latencies.sort()
    return {"count": len(latencies) - failed, "failed": failed, "seconds": elapsed} | {
        f"p{name}_us": latencies[min(int(len(latencies) * share), len(latencies) - 1)] * 1e6
        for name, share in (("50", 0.5), ("99", 0.99), ("999", 0.999))
    }
