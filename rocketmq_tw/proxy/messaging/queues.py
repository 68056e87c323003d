"""The queues that messages are sent to, and which of them a message group has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.client.routes import is_static, publish_queues_at_brokers
from rocketmq_tw.client.topic_turns import TopicTurns
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.proxy.avoided import AvoidedBrokers
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import MASTER_ID, TopicRouteData

#: Topics whose queues are remembered.
_MOST_TOPICS = 10_000

_MULTIPLIER = 2862933555777941757
_LONG = (1 << 64) - 1


def consistent_hash(number: int, buckets: int) -> int:
    """Returns which of `buckets` a number belongs to, as Guava's `Hashing.consistentHash` does:
    another bucket takes over its share of the numbers, and all others stay where they are."""
    state = number & _LONG
    candidate = 0
    while True:
        state = (state * _MULTIPLIER + 1) & _LONG
        step = (state >> 33) + 1
        # What is 2 ** 31 overflows in Java, and ends the search.
        found = buckets if step == 1 << 31 else int((candidate + 1) / (step / (1 << 31)))
        if found >= buckets:
            return candidate
        candidate = found


class _Known(NamedTuple):
    route: TopicRouteData
    queues: Sequence[MessageQueue]


class WriteQueues:
    """Chooses queues as stock's proxies do: those of brokers with a master, by name and id."""

    def __init__(self, clock: IReactorTime) -> None:
        self._avoided = AvoidedBrokers(clock)
        self._known: dict[str, _Known] = {}
        self._turns = TopicTurns.by_chance()

    def of(self, topic: str, route: TopicRouteData) -> Sequence[MessageQueue]:
        """Returns the queues that a route has for writing; none where no master takes messages."""
        known = self._known.get(topic)
        if known is not None and known.route is route:
            return known.queues
        masters = {
            each.broker_name for each in route.broker_datas if MASTER_ID in each.broker_addrs
        }
        queues = [
            queue
            for queue in publish_queues_at_brokers(topic, route)
            if queue.broker_name in masters
        ]
        if not is_static(route):
            # Logic queues stay in the order of their ids, whichever broker leads them.
            queues.sort()
        self._known.pop(topic, None)
        while len(self._known) >= _MOST_TOPICS:
            del self._known[next(iter(self._known))]
        self._known[topic] = _Known(route, queues)
        return queues

    def of_group(self, queues: Sequence[MessageQueue], group: str) -> MessageQueue:
        """Returns the queue of a message group: the same one in all proxies, as long as the topic
        has as many queues."""
        return queues[consistent_hash(java_hash_code(group), len(queues))]

    def next(self, queues: Sequence[MessageQueue], failed: str | None = None) -> MessageQueue:
        """Returns the next queue of a topic, round robin, of a broker that did not fail lately, nor
        is `failed`, where there is one. `queues` are all of that topic."""
        avoided = self._avoided.now()
        if not avoided:
            return self._turns.next_queue(queues, (failed,))
        avoid = {failed, *avoided}
        if all(queue.broker_name in avoid for queue in queues):
            avoid = {failed}
        return self._turns.next_queue(queues, avoid)

    def avoid(self, broker_name: str) -> None:
        """Passes over a broker for a while, since it cannot be reached or did not answer."""
        self._avoided.add(broker_name)
