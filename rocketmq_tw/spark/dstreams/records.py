"""A message as an element of a DStream."""

from collections.abc import Iterable
from typing import NamedTuple

from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.spark.ranges import OffsetRange


class Record(NamedTuple):
    """Times are milliseconds since 1970; queue and offset say where the message stands."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    body: bytes
    tags: str | None
    keys: list[str]
    properties: dict[str, str]
    message_id: str
    born_timestamp: int
    store_timestamp: int
    flag: int


def record_of(message: ReceivedMessage) -> Record:
    """Makes the record of a message; its offset and queue are those it was read from."""
    return Record(
        message.topic,
        message.queue.broker_name,
        message.queue.queue_id,
        message.queue_offset,
        message.body,
        message.tags,
        message.keys,
        message.properties,
        message.message_id,
        message.born_timestamp,
        message.store_timestamp,
        message.flag,
    )


def covered(records: Iterable[Record]) -> list[OffsetRange]:
    """Returns the ranges of offsets that the records fill, without gaps."""
    return merged(
        OffsetRange(r.topic, r.broker_name, r.queue_id, r.queue_offset, r.queue_offset + 1)
        for r in records
    )


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Sorts ranges, and joins ranges of one queue that touch or overlap."""
    made: list[OffsetRange] = []
    for part in sorted(ranges):
        if made and made[-1].queue == part.queue and part.start <= made[-1].end:
            last = made.pop()
            part = OffsetRange(
                part.topic,
                part.broker_name,
                part.queue_id,
                last.start,
                max(last.end, part.end),
            )
        made.append(part)
    return made
