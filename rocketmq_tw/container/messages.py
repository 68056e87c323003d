"""The messages between a container and a broker's process: one JSON object in each line.

The container writes to the process's standard input, `Orders` with the settings first; the process
writes to descriptor 3. The end of the container is the end of that input, however it came about.
"""

from __future__ import annotations

import os

from rocketmq_tw.structs import msgspec

#: Where a broker's process hears from its container, and where it tells it.
ORDERS, REPORTS = 0, 3
#: Bytes of one line.
MAX_LINE = 1 << 20


class Orders(msgspec.Struct, omit_defaults=True):
    """A line from the container to the process of a broker."""

    #: Keys and values that win over those of the broker's file; in the first line only.
    settings: dict[str, str] | None = None
    #: How long the process may take to stop, in ms.
    stop_timeout_millis: int | None = None
    #: Names of the masters that the container has now, the broker's own among them.
    masters: list[str] | None = None


class ChildReport(msgspec.Struct, omit_defaults=True):
    """A line from the process of a broker to its container."""

    #: The address at which the broker serves now.
    serves: str | None = None
    #: Why it cannot start; then it ends.
    failed: str | None = None


def encode_line(message: Orders | ChildReport) -> bytes:
    """Returns the line of a message."""
    return msgspec.json.encode(message) + b"\n"


def read_first_line(descriptor: int) -> bytes:
    """Returns what comes before the first newline, and takes no more; blocks. Raises `EOFError`
    where it ends before."""
    line = bytearray()
    while len(line) < MAX_LINE:
        byte = os.read(descriptor, 1)
        if byte == b"\n":
            return bytes(line)
        if not byte:
            break
        line += byte
    raise EOFError("the container said nothing")
