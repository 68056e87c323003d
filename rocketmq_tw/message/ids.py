"""Message ids: where a message is stored, the unique one that its producer gives it, and the
handle by which a producer takes back a message that still waits for its time.

Format: docs/formats/message.md, "Ids".
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime, tzinfo
from ipaddress import ip_address
from struct import Struct
from typing import NamedTuple

from rocketmq_tw.memo import remembered

_PORT_AND_OFFSET = Struct(">IQ")
_IPV4_ID_LENGTH = 32
_IPV6_ID_LENGTH = 56


class OffsetId(NamedTuple):
    """The broker's address and the offset in its log that an offset message id names."""

    host: str
    port: int
    offset: int


@remembered(4096)
def pack_ip(host: str) -> bytes:
    """Returns the 4 or 16 bytes of an IP address; raises `ValueError` for another text."""
    return ip_address(host).packed


def offset_message_id(host: str, port: int, offset: int) -> str:
    """Address, port (4 bytes) and log offset (8) in upper-case hex: 32 or 56 digits."""
    return (pack_ip(host) + _PORT_AND_OFFSET.pack(port, offset)).hex().upper()


def parse_offset_message_id(text: str) -> OffsetId:
    """Returns the parts of an offset message id; raises `ValueError` that says what is wrong with
    it."""
    if len(text) not in (_IPV4_ID_LENGTH, _IPV6_ID_LENGTH):
        raise ValueError(
            f"{text!r} is no offset message id: give its {_IPV4_ID_LENGTH} hex digits"
            f" ({_IPV6_ID_LENGTH} with an IPv6 address)"
        )
    try:
        data = bytes.fromhex(text)
        ip, tail = data[: -_PORT_AND_OFFSET.size], data[-_PORT_AND_OFFSET.size :]
        port, offset = _PORT_AND_OFFSET.unpack(tail)
        return OffsetId(str(ip_address(ip)), port, offset)
    except ValueError as error:
        raise ValueError(f"{text!r} is no offset message id: {error}") from error


class UniqueIds:
    """Makes unique message ids of stock's shape.

    Upper-case hex of the IP address, the process id (2 bytes), a number that tells this series
    from all others (4; random, as stock's hash code is), the milliseconds since the month began
    (4) and a counter (2).
    """

    def __init__(
        self,
        ip: bytes,
        process_id: int,
        series: int,
        now_ms: Callable[[], int],
        zone: tzinfo | None = None,
    ) -> None:
        self._prefix = (
            (
                ip
                + (process_id & 0xFFFF).to_bytes(2, "big")
                + (series & 0xFFFFFFFF).to_bytes(4, "big")
            )
            .hex()
            .upper()
        )
        self._now_ms = now_ms
        self._zone = zone
        self._month_start_ms = self._month_end_ms = 0
        self._counter = 0

    def next(self) -> str:
        """Returns an id that this series has not had within this millisecond's 65,536."""
        now = self._now_ms()
        if not self._month_start_ms <= now < self._month_end_ms:
            self._set_month(now)
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        return f"{self._prefix}{now - self._month_start_ms & 0xFFFFFFFF:08X}{counter:04X}"

    def _set_month(self, now_ms: int) -> None:
        moment = datetime.fromtimestamp(now_ms / 1000, self._zone)
        start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        month = start.month % 12 + 1
        end = start.replace(year=start.year + (month == 1), month=month)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._month_end_ms = int(end.timestamp() * 1000)


_VERSION = "v1"
_FIELDS = 5


class RecallHandle(NamedTuple):
    """`timestamp` is a time, in ms, of the slot that the message waits for, as text; `unique_id`
    the message's UNIQ_KEY."""

    topic: str
    broker_name: str
    timestamp: str
    unique_id: str

    def encode(self) -> str:
        """Returns the text that a send's answer has, in URL-safe base64."""
        return urlsafe_b64encode(" ".join((_VERSION, *self)).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle:
    """Raises `ValueError` for what is no handle."""
    bare = text.rstrip("=")
    try:
        data = b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True)
        fields = data.decode().rstrip(" ").split(" ")
    except ValueError as error:
        raise ValueError(f"no recall handle: {error}") from error
    if fields[0] != _VERSION or len(fields) < _FIELDS:
        raise ValueError("no recall handle: it is not `v1 TOPIC BROKER TIME ID` in base64")
    return RecallHandle(*fields[1:_FIELDS])
