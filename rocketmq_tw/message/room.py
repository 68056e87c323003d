"""Room among a message's properties for what brokers write there later (docs/formats/message.md).

A stored record has at most `MAX_PROPERTIES_LENGTH` bytes of them. A message that is delayed, timed,
asked about, revived or given back gets more, each time as a record of its own; so a send leaves
room for all of that. Stock leaves none: what it has stored may have to lose some.
"""

from __future__ import annotations

from rocketmq_tw.message import properties as props
from rocketmq_tw.message.properties import MAX_PROPERTIES_LENGTH, join_properties

#: Bytes for all that brokers add: where a retried message came from (a topic of 127 and an id of 56
#: characters), the retry topic of a group of 255 characters with its queue and level, the times of
#: a timer, the counts of a half message, the time of the first pop, and the record's CRC.
ROOM = 1024
#: Bytes that a new message may have.
MOST_SENT_PROPERTIES = MAX_PROPERTIES_LENGTH - ROOM
#: Bytes that any record may have, with its CRC behind them.
MOST_STORED = MAX_PROPERTIES_LENGTH - 20

#: Written by brokers, and found again without them.
_OF_BROKERS = (props.TRACE_ON, props.MSG_REGION, props.CLUSTER, props.TRANSACTION_ID)
#: What brokers and clients go by when a message is consumed again.
_NEEDED = frozenset(
    {
        props.UNIQ_KEY,
        props.RETRY_TOPIC,
        props.ORIGIN_MESSAGE_ID,
        props.DELAY,
        props.REAL_TOPIC,
        props.REAL_QID,
        props.WAIT,
    }
)


def fits(properties: dict[str, str], *, room: int = 0) -> bool:
    """Returns whether a record has room for these, and for so many bytes more."""
    return len(join_properties(properties)) + room <= MOST_STORED


def without_brokers_own(properties: dict[str, str]) -> dict[str, str]:
    """Returns `properties`, where they do not fit without those that a broker wrote at the send, as
    many as it takes; all of these may not be enough."""
    if fits(properties):
        return properties
    shorter = dict(properties)
    for name in _OF_BROKERS:
        shorter.pop(name, None)
        if fits(shorter):
            break
    return shorter


def without_longest(
    properties: dict[str, str], *, room: int = 0
) -> tuple[dict[str, str], list[str]]:
    """Returns `properties`, where they do not fit with `room` without the longest ones, as many as
    it takes, and the names of these. What tells where the message came from stays."""
    shorter, gone = dict(properties), list[str]()
    too_many = len(join_properties(properties)) + room - MOST_STORED
    if too_many <= 0:
        return shorter, gone
    sizes = {name: _size(name, properties) for name in properties.keys() - _NEEDED}
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        del shorter[name]
        gone.append(name)
        too_many -= sizes[name]
        if too_many <= 0:
            break
    return shorter, gone


def _size(name: str, properties: dict[str, str]) -> int:
    """Returns the bytes of a property among those of a record."""
    return len(join_properties({name: properties[name]}))
