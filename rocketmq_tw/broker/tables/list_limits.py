"""What requests that list topics or groups (18, 225) may have."""

from __future__ import annotations

from collections.abc import Sized

from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Entries of one request, all of which are made or none; 30 ms of work. Stock has no limit.
MAX_LISTED = 5_000
#: A group with everything set takes 500.
MAX_LIST_BYTES = 4 * 1024 * 1024


def check_list_bytes(body: bytes) -> None:
    """Raises `RequestError` for a body that is too long to be looked at."""
    if len(body) > MAX_LIST_BYTES:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"a list of {len(body)} bytes: send at most {MAX_LIST_BYTES} at once",
        )


def check_list_length(entries: Sized) -> None:
    """Raises `RequestError` for more entries than are made at once."""
    if len(entries) > MAX_LISTED:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"a list of {len(entries)}: send at most {MAX_LISTED} at once",
        )
