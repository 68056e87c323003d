"""Offsets as users and checkpoints write them: `{topic: {broker: {queue: offset}}}`.

In what a user gives, -2 means the earliest offset and -1 the latest.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rocketmq_tw.message.logic_queues import LOGIC_BROKER
from rocketmq_tw.spark.errors import OffsetError
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.queues import MessageQueue

EARLIEST = -2
LATEST = -1

Offsets = dict[MessageQueue, int]
#: The nested form: keys are texts, as in JSON.
OffsetsJson = dict[str, dict[str, dict[str, int]]]


def parse_offsets(text: str, option: str) -> Offsets:
    """Returns the offsets in a user's JSON; raises `OffsetError` that names `option`."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise OffsetError(
            f"{option} is neither earliest nor latest nor JSON"
            f' {{"topic": {{"broker": {{"0": offset}}}}}}: {error}'
        ) from error
    try:
        offsets = from_json(value)
    except (AttributeError, TypeError, ValueError) as error:
        raise OffsetError(
            f'{option} is not {{"topic": {{"broker": {{"0": offset}}}}}}: {text}'
        ) from error
    for queue, offset in offsets.items():
        if offset < EARLIEST:
            raise OffsetError(
                f"{option} has {offset} for {queue_text(queue)}: give an offset,"
                " -2 for the earliest or -1 for the latest"
            )
    return offsets


def from_json(value: Mapping[str, Any]) -> Offsets:
    """Returns the offsets in their nested form, as a checkpoint has them."""
    return {
        MessageQueue(topic=topic, broker_name=broker, queue_id=int(queue)): _whole(offset)
        for topic, brokers in value.items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    }


def to_json(offsets: Mapping[MessageQueue, int]) -> OffsetsJson:
    """Returns the nested form, sorted, so that the same offsets are the same text."""
    nested: OffsetsJson = {}
    for queue in sorted(offsets):
        brokers = nested.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def renamed(offsets: Offsets, queues: Iterable[MessageQueue]) -> Offsets:
    """Returns the offsets of those of `queues` that are logic ones and stand in `offsets` under the
    names of brokers, as in checkpoints of before they had a name of their own: the furthest, since
    each broker that hosted one was asked for all of it."""
    furthest: dict[tuple[str, int], int] = {}
    for queue, offset in offsets.items():
        place = queue.topic, queue.queue_id
        furthest[place] = max(offset, furthest.get(place, offset))
    return {
        queue: furthest[queue.topic, queue.queue_id]
        for queue in queues
        if queue.broker_name == LOGIC_BROKER and (queue.topic, queue.queue_id) in furthest
    }


def without_renamed(offsets: Offsets) -> Offsets:
    """Returns the offsets without those of a static topic's queues under the names of brokers."""
    static = {queue.topic for queue in offsets if queue.broker_name == LOGIC_BROKER}
    return {
        queue: offset
        for queue, offset in offsets.items()
        if queue.topic not in static or queue.broker_name == LOGIC_BROKER
    }


def queue_text(queue: MessageQueue) -> str:
    """Returns a queue for a person."""
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"


def lag(progress: Mapping[str, Any]) -> dict[str, int]:
    """Returns messages behind by topic, from one source of a query's progress.

    `progress` is an element of `query.lastProgress["sources"]`; its offsets are texts of JSON.
    """
    end, latest = (_progress_offsets(progress.get(key)) for key in ("endOffset", "latestOffset"))
    behind: dict[str, int] = dict.fromkeys(sorted({queue.topic for queue in latest}), 0)
    for queue, offset in latest.items():
        behind[queue.topic] += max(0, offset - end.get(queue, 0))
    return behind


def _progress_offsets(value: Any) -> Offsets:
    if isinstance(value, str):
        value = msgspec.json.decode(value)
    return from_json(value or {})


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value
