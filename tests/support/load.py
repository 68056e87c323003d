"""Loads from the test's own process: pipelined sends, batches, and reading it all back."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.remoting import Connection, ask
from tests.support.storecheck import Record, parse_records
from tests.support.wait import wait_until

_WINDOW = 16
_QUEUES = 4
_HAS_SUBSCRIPTION = 4
_BATCHED = Struct(">iiiii")


class Acked(NamedTuple):
    """A send that was answered with success."""

    queue: int
    offset: int
    body: bytes


def send_request(
    topic: str, queue: int, body: bytes, *, batch: bool = False, queues: int = _QUEUES
) -> RemotingCommand:
    """A send as a stock client writes it; the topic is made where it is missing."""
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    request = RemotingCommand.request(code, body=body)
    request.ext_fields = {
        "a": "test-load",
        "b": topic,
        "c": "TBW102",
        "d": str(queues),
        "e": str(queue),
        "f": "0",
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "true" if batch else "false",
    }
    return request


def send_until_accepted(address: str, topic: str, body: bytes) -> None:
    """Sends one message until the broker accepts it, which a busy one does not at once."""

    def accepted() -> bool:
        return ask(address, send_request(topic, 0, body)).code == ResponseCode.SUCCESS

    wait_until(accepted, f"the broker {address} to accept a message")


def encode_batch(bodies: list[bytes], properties: bytes = b"") -> bytes:
    """The body of a batch send: each message without a topic, all with the same properties."""
    length = len(properties).to_bytes(2, "big")
    parts: list[bytes] = []
    for body in bodies:
        size = _BATCHED.size + len(body) + 2 + len(properties)
        parts += (_BATCHED.pack(size, 0, 0, 0, len(body)), body, length, properties)
    return b"".join(parts)


class Load:
    """Threads that send `prefix-thread-number` with several requests under way until the server
    is gone or `stop` is called; `acked` holds what was acknowledged until then."""

    def __init__(self, address: str, topic: str, prefix: str, *, threads: int = 3) -> None:
        self.acked: list[Acked] = []
        self._address = address
        self._topic = topic
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(f"{prefix}-{number}",))
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def has_acked(self, messages: int) -> bool:
        """Whether so many sends were answered with success by now."""
        return len(self.acked) >= messages

    def stop(self) -> list[Acked]:
        """What was acknowledged, once all threads are done."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        return self.acked

    def _run(self, prefix: str) -> None:
        waiting: dict[int, bytes] = {}
        try:
            with Connection(self._address) as connection:
                for number in itertools.count():
                    if self._stopped.is_set():
                        break
                    request = send_request(
                        self._topic, number % _QUEUES, f"{prefix}-{number}".encode()
                    )
                    waiting[request.opaque] = request.body
                    connection.send(request)
                    if len(waiting) >= _WINDOW:
                        self._take(connection.receive(), waiting)
                while waiting:
                    self._take(connection.receive(), waiting)
        except OSError:
            # The server was killed, as the test means it to be; what has no answer is not acked.
            return

    def _take(self, response: RemotingCommand, waiting: dict[int, bytes]) -> None:
        body = waiting.pop(response.opaque)
        if response.code == ResponseCode.SUCCESS:
            fields = response.ext_fields
            self.acked.append(Acked(int(fields["queueId"]), int(fields["queueOffset"]), body))


def read_topic(address: str, topic: str, queues: int = _QUEUES) -> Iterator[Record]:
    """Every message that the broker serves of the topic, queue by queue."""
    with Connection(address) as connection:
        for queue in range(queues):
            offset = 0
            while True:
                response = connection.request(_pull_request(topic, queue, offset))
                if response.code == ResponseCode.SUCCESS:
                    yield from parse_records(response.body)
                next_offset = int(response.ext_fields.get("nextBeginOffset", offset))
                if next_offset <= offset:
                    break
                offset = next_offset


def _pull_request(topic: str, queue: int, offset: int) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE)
    request.ext_fields = {
        "consumerGroup": "test-readers",
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "256",
        "sysFlag": str(_HAS_SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return request
