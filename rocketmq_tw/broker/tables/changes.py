"""What requests that change topics and groups have in common: codes, refusal, limits."""

from __future__ import annotations

from collections.abc import Sized

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: The requests, about what a slave copies. Stock 5.3's tools ask slaves too and fail where one
#: refuses; its slaves say yes, and the next copy from the master takes any change back.
CHANGING = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)
#: Why another broker than the master refuses a change of topics and groups.
ONLY_A_MASTER_CHANGES = (
    "this broker is no master, its topics and groups are the master's: change them there"
)
#: Entries of one request, all of which are made or none; 30 ms of work. Stock has no limit.
MAX_LISTED = 5_000
#: A group with everything set takes 500.
MAX_LIST_BYTES = 4 * 1024 * 1024


def check_list_bytes(body: bytes) -> None:
    """Raises `RequestError` for a body that is too long to be parsed."""
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
