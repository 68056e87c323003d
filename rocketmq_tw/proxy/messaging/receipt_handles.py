"""Receipt handles: what a client has of a message that it received, and acknowledges it by.

They have the form of stock's proxies, so that each proxy of a cluster takes those of the others.
"""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_tw.message.extra_info import (
    SEPARATOR,
    ExtraInfo,
    parse_extra_info,
    topic_of_kind,
)
from rocketmq_tw.message.properties import number
from rocketmq_tw.wire.errors import RequestError

_PARTS = 8
#: Ids of queues.
_INT = range(1 << 31)
#: Characters of a handle; a broker's name is the one part without a limit.
MAX_HANDLE = 1024


class ReceiptHandle(NamedTuple):
    """A message that was popped: its extra info, and its offset in the commit log, -1 where that is
    not known."""

    info: ExtraInfo
    log_offset: int

    def __str__(self) -> str:
        return f"{self.info}{SEPARATOR}{self.log_offset}"

    @property
    def visible_at(self) -> int:
        """When others may receive the message, in ms since 1970."""
        return self.info.pop_time + self.info.invisible_time

    def topic(self, topic: str, group: str) -> str:
        """Returns the topic that the message stands in, where `group` received it from `topic`."""
        return topic_of_kind(topic, group, self.info.kind)


def parse_receipt_handle(text: str) -> ReceiptHandle:
    """Reads a receipt handle; raises `ValueError`, which says what is wrong with it."""
    if len(text) > MAX_HANDLE:
        raise ValueError(f"a receipt handle of {len(text)} characters, it is none of a proxy's")
    parts = text.split(SEPARATOR)
    if len(parts) < _PARTS:
        raise ValueError(
            f"the receipt handle {text!r} has {len(parts)} of {_PARTS + 1} parts: hand back what"
            " came with the message"
        )
    try:
        info = parse_extra_info(text)
        topic_of_kind("", "", info.kind)
    except RequestError as error:
        raise ValueError(f"the receipt handle cannot be read: {error.remark}") from None
    is_in_queue = info.queue_id in _INT and info.offset >= 0
    if not is_in_queue or info.revive_queue_id not in _INT or info.start_offset < 0:
        raise ValueError(f"the receipt handle {text!r} names no message of a queue")
    log_offset = -1
    if len(parts) > _PARTS:
        found = number(parts[_PARTS])
        if found is None:
            raise ValueError(
                f"the receipt handle {text!r} ends with {parts[_PARTS]!r}, which is no number:"
                " hand back what came with the message"
            )
        log_offset = found
    return ReceiptHandle(info, log_offset)
