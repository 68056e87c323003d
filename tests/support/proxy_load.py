"""Producers and consumers at several proxies, which may die; what became of each message.

load = ProxyLoad([one.address, other.address], "Topic", "Group")
load.start()
...
load.stop_sending()
load.wait_drained()
assert not load.faults()
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import grpc

from rocketmq_tw.proxy.proto.messaging_pb2 import Code, Message, MessageQueue
from tests.support.bare_grpc import BareClient
from tests.support.running import Closing
from tests.support.wait import wait_until

#: Seconds for which a message that was received is hidden: the least that proxies take.
INVISIBLE = 10
#: Seconds by which clocks and long polls may make a message come earlier than that.
SLACK = 1.0
#: Tries of one send, each at the next proxy.
TRIES = 3
_STORED = frozenset({Code.OK})
#: How proxies say that a broker did not answer, and what such a status has where it was not asked.
_LOST = frozenset({Code.INTERNAL_SERVER_ERROR, Code.PROXY_TIMEOUT})
_NOT_ASKED = "cannot connect"


@dataclass
class Seen:
    """What is known of one message, in seconds of a monotonic clock."""

    #: When each receive that brought it began, and when it came.
    receives: list[tuple[float, float]] = field(default_factory=list)
    #: When an acknowledgement of it was answered with OK.
    acknowledged: float | None = None
    #: Whether an acknowledgement was not answered, by the proxy or by the broker behind it: the
    #: broker may have taken it.
    unanswered: bool = False
    #: The codes of acknowledgements that were refused.
    refusals: list[int] = field(default_factory=list)


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
    ) -> None:
        self._addresses = addresses
        self._topic = topic
        self._group = group
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
        self._consumers = [
            threading.Thread(target=self._receive_all, args=(number,), daemon=True)
            for number in range(consumers)
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

    def faults(self) -> list[str]:
        """What breaks a promise: a message that is lost, that comes again though it was
        acknowledged, or before the time is over for which it was hidden."""
        found = [
            f"{body}: sent, and lost: came {len(self.seen[body].receives)} times,"
            f" acknowledgements refused with {self.seen[body].refusals}"
            for body in self.missing()
        ]
        with self._lock:
            for body, seen in self.seen.items():
                found += _faults_of(body, seen)
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
            if self._sending.is_set():
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
        turns = count(number)
        while not self._receiving.is_set():
            for address in self._addresses:
                client = BareClient(address, f"consumer-{number}-{time.monotonic_ns()}")
                try:
                    client.consume(self._group, self._topic)
                    self._receive_from(client, turns)
                except (grpc.RpcError, grpc.FutureTimeoutError):
                    # The proxy is away: the next one.
                    self._receiving.wait(0.1)
                finally:
                    client.close()

    def _receive_from(self, client: BareClient, turns: Iterator[int]) -> None:
        """Receives for a while, from the queues by turns: empty ones take a second each, so that
        the next call goes on at the next queue."""
        queues: list[MessageQueue] = client.queues(self._topic)
        until = time.monotonic() + 5
        for turn in turns:
            if self._receiving.is_set() or time.monotonic() > until:
                return
            began = time.monotonic()
            messages = client.receive(self._group, queues[turn % len(queues)], invisible=INVISIBLE)
            for message in messages:
                body = message.body.decode()
                with self._lock:
                    self.seen[body].receives.append((began, time.monotonic()))
                self._acknowledge(client, message)

    def _acknowledge(self, client: BareClient, message: Message) -> None:
        seen = self.seen[message.body.decode()]
        try:
            status = client.acknowledged(self._group, message)
        except grpc.RpcError:
            seen.unanswered = True
            raise
        if status.code == Code.OK:
            seen.acknowledged = time.monotonic()
        else:
            seen.refusals.append(status.code)
            lost = status.code in _LOST and _NOT_ASKED not in status.message
            seen.unanswered = seen.unanswered or lost


def _faults_of(body: str, seen: Seen) -> list[str]:
    found = []
    for (began, _), (_, came) in zip(seen.receives, seen.receives[1:], strict=False):
        # Hidden from when the broker popped it: not before the receive began.
        if came - began < INVISIBLE - SLACK:
            found.append(f"{body}: came again after {came - began:.1f} s, hidden for {INVISIBLE}")
    last_began = seen.receives[-1][0] if seen.receives else 0.0
    if seen.acknowledged is not None and last_began > seen.acknowledged:
        found.append(f"{body}: came again after its acknowledgement was answered with OK")
    return found
