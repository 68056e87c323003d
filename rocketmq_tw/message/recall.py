"""The handle by which a producer takes back a message that still waits for its time."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from typing import NamedTuple

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
        """The text that a send's answer has, in URL-safe base64."""
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
