"""Receives that are cut at any time, beside others: no message is lost, none comes twice before its
time, and groups in order keep their order."""

from __future__ import annotations

import random
from math import inf
from typing import Any, NamedTuple

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.proxy.messaging.receipt_handles import parse_receipt_handle
from rocketmq_tw.proxy.proto.messages import Code
from tests.support.proxy import FakeCall
from tests.support.receiving import ReceivingWorld, received

#: Seconds for which receives hide what they get.
DURATIONS = (20, 35)


class Open(NamedTuple):
    """A receive that is open."""

    call: FakeCall
    done: Deferred[None]
    attempt: str


class CutReceives:
    """Clients of a group that receive, acknowledge and cut their receives by chance."""

    def __init__(
        self, seed: int, *, is_fifo: bool, renews: bool, is_local: bool = False, proxies: int = 1
    ) -> None:
        self.random = random.Random(seed)
        self.world = ReceivingWorld(is_fifo=is_fifo, is_local=is_local)
        self.proxies = [self.world, *(self.world.another_proxy() for _ in range(proxies - 1))]
        self.is_fifo = is_fifo
        self.renews = renews
        self.sent = 0
        self.open: list[Open] = []
        #: Attempts of receives that were cut, which may be made again.
        self.cut_attempts: list[str] = []
        #: Message -> until when it is its client's alone, in ms.
        self.held: dict[bytes, float] = {}
        self.acknowledged: list[bytes] = []

    def send(self) -> None:
        self.world.send(b"%d" % self.sent)
        self.sent += 1

    def begin(self) -> None:
        attempt = ""
        if self.random.random() < 0.7:
            if self.cut_attempts and self.random.random() < 0.7:
                attempt = self.cut_attempts.pop()
            else:
                attempt = f"attempt-{self.random.random()}"
        call, done = self.random.choice(self.proxies).begin(
            attempt_id=attempt,
            auto_renew=self.renews,
            batch_size=self.random.choice([1, 3, 32]),
            invisible_duration={"seconds": self.random.choice(DURATIONS)},
            long_polling_timeout={"seconds": self.random.choice([5, 20])},
        )
        self.open.append(Open(call, done, attempt))

    def cut(self) -> None:
        waiting = [each for each in self.open if not each.done.called]
        if waiting:
            each = self.random.choice(waiting)
            self.open.remove(each)
            each.call.finish()
            if each.attempt:
                self.cut_attempts.append(each.attempt)

    def take(self) -> None:
        """Clients have what came, and acknowledge it all, or some of it."""
        now = self.world.broker.now_ms()
        for each in [each for each in self.open if each.done.called]:
            self.open.remove(each)
            for message in received(each.call).messages:
                body = message.body
                assert self.held.get(body, 0) <= now, f"{body!r} came before its time"
                assert body not in self.acknowledged
                handle = parse_receipt_handle(message.system_properties.receipt_handle)
                self.held[body] = inf if self.renews else handle.visible_at
                if self.random.random() < 0.8:
                    self.acknowledge(message)
                elif self.is_fifo:
                    # Those behind it come after it.
                    break

    def acknowledge(self, message: Any) -> None:
        assert self.world.ack(message).status.code == Code.OK
        self.acknowledged.append(message.body)

    def go(self, steps: int) -> None:
        for _ in range(steps):
            what = self.random.choice([self.send, self.begin, self.begin, self.cut, self.take])
            what()
            if self.random.random() < 0.5:
                self.world.pass_time(self.random.choice([0.25, 0.25, 0.5, 1, 3]))
            self.take()
        while self.open:
            self.cut()
            # Others may have got what it did not.
            self.take()

    def drain(self) -> None:
        """One client receives until all are acknowledged."""
        # What it has in hand is renewed no more.
        for proxy in self.proxies:
            proxy.clients.remove("client")
        for _ in range(60):
            if len(self.acknowledged) == self.sent:
                return
            for message in self.world.receive(long_polling_timeout={"seconds": 10}).messages:
                assert message.body not in self.acknowledged
                self.acknowledge(message)
        raise AssertionError(f"{self.sent - len(self.acknowledged)} messages do not come")


@pytest.mark.parametrize("renews", [False, True])
@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("is_fifo", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_none_is_lost_and_none_comes_before_its_time(
    seed: int, is_fifo: bool, is_local: bool, renews: bool
) -> None:
    clients = CutReceives(seed, is_fifo=is_fifo, is_local=is_local, renews=renews)
    check(clients)


@pytest.mark.parametrize("renews", [False, True])
@pytest.mark.parametrize("is_fifo", [False, True])
@pytest.mark.parametrize("seed", [0, 11, 13, 28])
def test_none_is_lost_and_none_comes_before_its_time_at_two_proxies(
    seed: int, is_fifo: bool, renews: bool
) -> None:
    """Which are asked by chance, also for an attempt that is made again."""
    check(CutReceives(seed, is_fifo=is_fifo, renews=renews, proxies=2))


def check(clients: CutReceives) -> None:
    clients.go(60)
    clients.drain()
    assert len(set(clients.acknowledged)) == clients.sent
    if clients.is_fifo:
        assert clients.acknowledged == [b"%d" % number for number in range(clients.sent)]
