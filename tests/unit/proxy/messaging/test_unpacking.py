"""Bodies that not all clients of gRPC read: large ones are unpacked in a thread, within bounds."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.compression import CompressionType, compress, compression_flag
from rocketmq_tw.message.model import COMPRESSED, StoredMessage
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from tests.support.proxy import answer_of

MIB = 1024 * 1024
KINDS = list(CompressionType)


class Threads:
    """Jobs that the test has done."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def __call__(self, job: Callable[[], Any]) -> Deferred[Any]:
        self.jobs.append((job, Deferred()))
        return self.jobs[-1][1]

    def work(self) -> None:
        """Does the newest job."""
        job, done = self.jobs[-1]
        try:
            done.callback(job())
        except ValueError as error:
            done.errback(error)


def packed(body: bytes, kind: CompressionType) -> StoredMessage:
    return StoredMessage(
        topic="T", queue_id=0, body=compress(body, kind), sys_flag=compression_flag(kind)
    )


def begin(
    unpacking: Unpacking, stored: StoredMessage, client: str = "c"
) -> Deferred[StoredMessage]:
    return Deferred.fromCoroutine(unpacking.unpacked(stored, client))


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_body_is_unpacked_at_once(kind: CompressionType) -> None:
    threads = Threads()
    found = answer_of(begin(Unpacking(ProxyConfig(), threads), packed(bytes(MIB), kind)))
    assert (found.body, found.sys_flag & COMPRESSED) == (bytes(MIB), 0)
    assert threads.jobs == []


@pytest.mark.parametrize("kind", KINDS)
def test_large_bodies_are_unpacked_in_a_thread_hosts_by_turns(kind: CompressionType) -> None:
    threads = Threads()
    unpacking = Unpacking(ProxyConfig(), threads)
    ended = []
    for client, size in (("a:1", 2), ("a:2", 3), ("a:3", 4), ("b:1", 5)):
        stored = packed(bytes(size * MIB), kind)
        begin(unpacking, stored, client).addCallback(lambda found: ended.append(found.body))
    for number in range(1, 5):
        assert (len(threads.jobs), len(ended)) == (number, number - 1)
        threads.work()
    assert [len(body) // MIB for body in ended] == [2, 3, 5, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_is_large_as_it_is_goes_to_a_thread(kind: CompressionType) -> None:
    """The clients of Node.js read no zlib, and would lose the whole receive by one of it."""
    threads = Threads()
    body = random.Random(7).randbytes(100_000)
    done = begin(Unpacking(ProxyConfig(), threads), packed(body, kind))
    threads.work()
    assert answer_of(done).body == body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("config", "most"), [(4 * MIB, 8), (MIB // 8, 1), (0, 40)])
def test_a_body_of_twice_what_may_be_sent_stays_packed(
    kind: CompressionType, config: int, most: int
) -> None:
    threads = Threads()
    unpacking = Unpacking(ProxyConfig(max_message_size=config), threads)
    taken, refused = (packed(bytes(most * MIB + more), kind) for more in (0, 1))
    for stored in (taken, refused):
        done = begin(unpacking, stored)
        if threads.jobs:
            threads.work()
        found = answer_of(done)
        assert (found is refused) is (stored is refused)
    assert len(taken.body) < MIB // 4


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(
            StoredMessage(topic="T", queue_id=0, body=gzip.compress(b"hello"), sys_flag=COMPRESSED),
            id="gzip, as stock's proxies store it",
        ),
        pytest.param(StoredMessage(topic="T", queue_id=0, body=b"hello"), id="not packed"),
        pytest.param(
            StoredMessage(
                topic="T",
                queue_id=0,
                body=b"hello",
                sys_flag=compression_flag(CompressionType.LZ4),
            ),
            id="damaged",
        ),
        pytest.param(
            StoredMessage(topic="T", queue_id=0, body=b"hello", sys_flag=COMPRESSED | 7 << 8),
            id="packed as nobody knows",
        ),
    ],
)
def test_others_are_as_they_are(stored: StoredMessage) -> None:
    assert answer_of(begin(Unpacking(ProxyConfig(), Threads()), stored)) is stored
