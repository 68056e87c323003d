"""Producers and consumers at several proxies, which may die; what became of each message.

Consumers are of three kinds: those that acknowledge at once, those that have messages renewed
while they keep them for a while, and those that receive at one proxy and acknowledge at the next.

load = ProxyLoad([one.address, other.address], "Topic", "Group")
load.start()
...
load.stop_sending()
load.wait_drained()
assert not load.faults()
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle, pairwise
from math import inf
from typing import NamedTuple

import grpc

from rocketmq_tw.proxy.proto.messages import Code, Message, MessageQueue
from tests.support.bare_grpc import BareClient
from tests.support.running import Closing
from tests.support.wait import wait_until

#: Seconds for which a message that was received is hidden: the least that proxies take.
INVISIBLE = 10
#: `defaultInvisibleTimeMills` of the proxies, in seconds: so long a message is hidden that is
#: renewed, and for longer from ten seconds before.
RENEWED = 20
RENEWED_KEYS = {"defaultInvisibleTimeMills": RENEWED * 1000}
#: Seconds for which a consumer stays at one proxy, at least.
STAY = 5.0
#: Seconds by which clocks and long polls may make a message come earlier than that.
SLACK = 1.0
#: Tries of one send, each at the next proxy.
TRIES = 3
_STORED = frozenset({Code.OK})
#: How proxies say that a broker did not answer, and what such a status has where it was not asked.
_LOST = frozenset({Code.INTERNAL_SERVER_ERROR, Code.PROXY_TIMEOUT})
_NOT_ASKED = "cannot connect"


class Receive(NamedTuple):
    """When a receive began that brought a message, when it came, and for how long it was hidden."""

    began: float
    came: float
    hidden: int


class Kept(NamedTuple):
    """A message that was received, and when it is to be acknowledged."""

    due: float
    message: Message
    receive: Receive


@dataclass
class Seen:
    """What is known of one message, in seconds of a monotonic clock."""

    receives: list[Receive] = field(default_factory=list)
    #: The receive whose handle was acknowledged with OK.
    done: Receive | None = None
    #: When an acknowledgement of it was answered with OK.
    acknowledged: float | None = None
    #: Whether an acknowledgement was not answered, by the proxy or by the broker behind it: the
    #: broker may have taken it.
    unanswered: bool = False
    #: The codes of acknowledgements that were refused.
    refusals: list[int] = field(default_factory=list)

    @property
    def came_once(self) -> bool:
        """Whether it was acknowledged when it had come once."""
        acknowledged = self.acknowledged
        before = [each for each in self.receives if acknowledged and each.began <= acknowledged]
        return len(before) == 1


class NoRoute(Exception):
    """A proxy knows no queue to receive from."""


class ProxyLoad(Closing):
    """Threads that send and receive until they are stopped, at one proxy after the other."""

    def __init__(
        self,
        addresses: Sequence[str],
        topic: str,
        group: str,
        *,
        producers: int = 2,
        consumers: int = 3,
        renewing: int = 1,
        moving: int = 1,
        longest_kept: float = 3.0,
        pause: float = 0.0,
    ) -> None:
        """`longest_kept`: for so many seconds at most messages are kept that are renewed; `pause`:
        seconds between two sends of a producer."""
        self._addresses = addresses
        self._topic = topic
        self._group = group
        self._longest_kept = longest_kept
        self._pause = pause
        #: How many messages were kept for longer than they were hidden at first, and acknowledged.
        self.renewed = 0
        #: How many were acknowledged at another proxy than they came from.
        self.moved = 0
        self._lock = threading.Lock()
        self._sending, self._receiving = threading.Event(), threading.Event()
        #: Bodies whose send was answered with OK, and when.
        self.sent: dict[str, float] = {}
        #: What the tries of sends that never succeeded were answered.
        self.refused: list[str] = []
        #: Tries that failed, where a later one may have helped.
        self.retried = 0
        self.seen: defaultdict[str, Seen] = defaultdict(Seen)
        self._producers = [
            threading.Thread(target=self._send_all, args=(number,), daemon=True)
            for number in range(producers)
        ]
        kinds = ((self._receive_all, consumers), (self._keep_all, renewing), (self._move, moving))
        self._consumers = [
            threading.Thread(target=work, args=(number,), daemon=True)
            for work, count_of_kind in kinds
            for number in range(count_of_kind)
        ]

    def start(self) -> None:
        for thread in (*self._producers, *self._consumers):
            thread.start()

    def stop_sending(self) -> None:
        self._sending.set()
        for thread in self._producers:
            thread.join()

    def close(self) -> None:
        self.stop_sending()
        self._receiving.set()
        for thread in self._consumers:
            thread.join()

    def wait_drained(self, limit: float = 60) -> None:
        """Waits until each message that was sent has been acknowledged."""
        wait_until(
            lambda: not self.missing(), "all messages to be acknowledged", limit=limit, interval=0.2
        )

    def missing(self) -> list[str]:
        """Messages whose send was answered with OK, and that were not acknowledged yet, nor may
        have been."""
        with self._lock:
            return [body for body in self.sent if not self._is_done(body)]

    def faults(self, *, a_broker_died: bool = False) -> list[str]:
        """What breaks a promise: a message that is lost, that comes again though it was
        acknowledged, or before the time is over for which it was hidden. Where `a_broker_died` it
        may not know of a pop that it had answered, nor of its neighbours: these messages may come
        again at any time, and until each of their deliveries has been acknowledged."""
        found = [
            f"{body}: sent, and lost: came {len(self.seen[body].receives)} times,"
            f" acknowledgements refused with {self.seen[body].refusals}"
            for body in self.missing()
        ]
        with self._lock:
            for body, seen in self.seen.items():
                if not a_broker_died:
                    found += _came_early(body, seen)
                if not a_broker_died or seen.came_once:
                    found += _came_after_the_end(body, seen)
        return found

    def duplicates(self) -> int:
        """How many messages came more than once."""
        with self._lock:
            return sum(len(seen.receives) > 1 for seen in self.seen.values())

    def _is_done(self, body: str) -> bool:
        seen = self.seen[body]
        return seen.acknowledged is not None or seen.unanswered

    def _send_all(self, producer: int) -> None:
        clients = [BareClient(each, f"producer-{producer}") for each in self._addresses]
        for number in count():
            if self._sending.wait(self._pause):
                break
            self._send(clients, f"{producer}-{number}", number)
        for client in clients:
            client.close()

    def _send(self, clients: Sequence[BareClient], body: str, first: int) -> None:
        answers = []
        for turn in range(TRIES):
            # A try that was not answered may have been stored.
            tried = f"{body}.{turn}"
            try:
                status = clients[(first + turn) % len(clients)].send(self._topic, tried)
            except grpc.RpcError as error:
                answers.append(str(error.code()))
            else:
                if status.code in _STORED:
                    with self._lock:
                        self.sent[tried] = time.monotonic()
                        self.retried += turn
                    return
                answers.append(f"{status.code} {status.message}")
            time.sleep(0.05 * (turn + 1))
        with self._lock:
            self.refused.append(f"{body}: {'; '.join(answers)}")

    def _receive_all(self, number: int) -> None:
        """Receives and acknowledges at one proxy after the other."""
        turns = count(number)
        while not self._receiving.is_set():
            for address in self._addresses:
                with self._client(address, f"consumer-{number}-{time.monotonic_ns()}") as client:
                    queues = self._consume(client)
                    until = time.monotonic() + STAY
                    while not self._receiving.is_set() and time.monotonic() < until:
                        for message, receive in self._receive(client, queues, turns):
                            self._acknowledge(client, message, receive)

    def _keep_all(self, number: int) -> None:
        """Receives messages that are renewed while it keeps them, and acknowledges them at the
        proxy that they came from, at the next one where that dies."""
        turns, chance = count(number), random.Random(number)
        kept: list[Kept] = []
        for address in cycle(self._addresses):
            if self._receiving.is_set():
                return
            with self._client(address, f"keeper-{number}-{time.monotonic_ns()}") as client:
                queues = self._consume(client)
                # Nobody renews what came from another proxy.
                self._acknowledge_due(client, kept)
                until = time.monotonic() + STAY + self._longest_kept
                while not self._receiving.is_set() and time.monotonic() < until:
                    for message, receive in self._receive(client, queues, turns, renewed=True):
                        due = receive.came + chance.uniform(0, self._longest_kept)
                        kept.append(Kept(due, message, receive))
                    kept.sort(key=lambda each: -each.due)
                    self._acknowledge_due(client, kept, time.monotonic())
                # Before the stream ends: renewed messages of a client that is gone come back.
                self._acknowledge_due(client, kept)

    def _move(self, number: int) -> None:
        """Receives at a proxy, connects to the next one, and acknowledges there."""
        turns = count(number)
        taken: list[Kept] = []
        for address in cycle(self._addresses):
            if self._receiving.is_set():
                return
            with self._client(address, f"mover-{number}") as client:
                queues = self._consume(client)
                self.moved += self._acknowledge_due(client, taken)
                found = self._receive(client, queues, turns)
                taken = [Kept(0.0, message, receive) for message, receive in found]

    @contextmanager
    def _client(self, address: str, client_id: str) -> Iterator[BareClient]:
        """A client of a proxy; where that is away, its work ends."""
        client = BareClient(address, client_id)
        try:
            yield client
        except (grpc.RpcError, grpc.FutureTimeoutError, NoRoute):
            self._receiving.wait(0.1)
        finally:
            client.close()

    def _consume(self, client: BareClient) -> list[MessageQueue]:
        """Has a client be a consumer; returns the queues that it receives from. Raises `NoRoute`
        at a proxy that has just started, and asks name servers that have, too."""
        client.consume(self._group, self._topic)
        queues: list[MessageQueue] = client.queues(self._topic)
        if not queues:
            raise NoRoute
        return queues

    def _receive(
        self,
        client: BareClient,
        queues: Sequence[MessageQueue],
        turns: Iterator[int],
        *,
        renewed: bool = False,
    ) -> list[tuple[Message, Receive]]:
        """Receives from the queues by turns: an empty one takes a second, so that the next call
        goes on at the next queue."""
        began = time.monotonic()
        queue = queues[next(turns) % len(queues)]
        messages = client.receive(self._group, queue, invisible=None if renewed else INVISIBLE)
        receive = Receive(began, time.monotonic(), RENEWED if renewed else INVISIBLE)
        with self._lock:
            for message in messages:
                self.seen[message.body.decode()].receives.append(receive)
        return [(message, receive) for message in messages]

    def _acknowledge_due(self, client: BareClient, kept: list[Kept], now: float = inf) -> int:
        """Acknowledges the last ones of a list that are due, and takes them out of it; returns how
        many were answered with OK."""
        done = 0
        while kept and kept[-1].due <= now:
            _, message, receive = kept.pop()
            if self._acknowledge(client, message, receive):
                done += 1
                is_renewed = receive.hidden == RENEWED
                self.renewed += is_renewed and time.monotonic() - receive.came > RENEWED
        return done

    def _acknowledge(self, client: BareClient, message: Message, receive: Receive) -> bool:
        """Acknowledges a message; returns whether OK was the answer."""
        seen = self.seen[message.body.decode()]
        try:
            status = client.acknowledged(self._group, message)
        except grpc.RpcError:
            seen.unanswered = True
            raise
        if status.code == Code.OK:
            seen.acknowledged, seen.done = time.monotonic(), receive
            return True
        seen.refusals.append(status.code)
        lost = status.code in _LOST and _NOT_ASKED not in status.message
        seen.unanswered = seen.unanswered or lost
        return False


def _came_after_the_end(body: str, seen: Seen) -> list[str]:
    last_began = seen.receives[-1].began if seen.receives else 0.0
    if seen.acknowledged is not None and last_began > seen.acknowledged:
        return [f"{body}: came again after its acknowledgement was answered with OK"]
    return []


def _came_early(body: str, seen: Seen) -> list[str]:
    found = []
    for former, receive in pairwise(seen.receives):
        # Hidden from when the broker popped it: not before the receive began.
        after = receive.came - former.began
        if after < former.hidden - SLACK:
            found.append(f"{body}: came again after {after:.1f} s, hidden for {former.hidden}")
    if seen.done is not None and seen.receives[-1] is not seen.done and not seen.unanswered:
        found.append(f"{body}: came again while the one before had it, whose handle was good")
    return found
