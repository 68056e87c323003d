"""Divides the queues of a topic among the members of a group.

Rules: stock's `AllocateMessageQueueStrategy`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketmq_tw.client.routes import allocate_averagely
from rocketmq_tw.wire.bodies.queues import MessageQueue

#: (queues, members, member) -> its queues; both are sorted.
Strategy = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]


def allocate_by_circle(
    queues: Sequence[MessageQueue], members: Sequence[str], member: str
) -> list[MessageQueue]:
    """Returns the share of `member`: every so many queues one, from its own place among the members
    on."""
    if member not in members:
        return []
    return list(queues[members.index(member) :: len(members)])


#: Name on the wire -> how it divides.
STRATEGIES: dict[str, Strategy] = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_by_circle,
}


def allocate_for_pop(
    divide: Strategy,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    member: str,
    shared: int,
) -> list[MessageQueue]:
    """Returns the queues that `member` pops: with `shared` members behind it in the list it shares
    theirs. Where all share all, a queue id of -1 stands for all queues of a broker."""
    if shared <= 0 or shared >= len(members) - 1:
        names = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return [MessageQueue(topic=topic, broker_name=name, queue_id=-1) for topic, name in names]
    if member not in members:
        return []
    index = members.index(member)
    if len(members) > len(queues):
        return [queues[index % len(queues)]]
    found: dict[MessageQueue, None] = {}
    for step in range(shared + 1):
        found.update(dict.fromkeys(divide(queues, members, members[(index + step) % len(members)])))
    return list(found)
