"""Codes, refusal and limits that requests which change topics and groups have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sized

from twisted.logger import Logger

from rocketmq_tw.net.changes import who
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: The requests, about what a slave copies. Stock 5.3's tools ask slaves too and fail where one
#: refuses; its slaves say yes, and the next copy from the master takes any change back. A slave
#: of ours says yes or no as its master would.
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
#: Topics, or groups, from which on no request makes another one: names cost memory and disk. First
#: uses stop at half of that, so that they leave room to administrators.
MAX_ENTRIES = 200_000
#: Of one topic or group, as JSON.
MAX_ENTRY_BYTES = 16 * 1024

#: Raises `RequestError` for a request that would be refused.
Check = Callable[[RemotingCommand], object]

log = Logger()

_encode = msgspec.json.Encoder().encode


def left_to_the_master(
    request: RemotingCommand, peer: IPeer, check: Check, remark: str
) -> RemotingCommand:
    """Answers a change that a slave is asked for as stock's does, whose tools take a refusal for
    the failure of all that they do: with success, where `check` does not raise. It changes nothing,
    and `remark` says who does."""
    check(request)
    log.info(
        "{peer} sent request {code}: left to the master, which this slave copies",
        peer=who(peer),
        code=request.code,
    )
    return request.response(remark=remark)


def check_list_bytes(body: bytes) -> None:
    """Raises `RequestError` for a body that is too long to be parsed."""
    if len(body) > MAX_LIST_BYTES:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"a list of {len(body)} bytes: send at most {MAX_LIST_BYTES} at once",
        )


def check_entry_body(body: bytes) -> None:
    """Raises `RequestError` for a body that is too long for one entry, however it is written."""
    if len(body) > 4 * MAX_ENTRY_BYTES:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"a configuration of {len(body)} bytes: leave out what is not needed, it may have"
            f" {MAX_ENTRY_BYTES}",
        )


def check_table_room(
    kind: str, table: Collection[str], names: Collection[str], limit: int, command: str
) -> None:
    """Raises `RequestError` where entries with these names would make the table larger than it may
    be; `kind` says what it has, and `command` of rmqadmin deletes one."""
    if len(table) + len(names) > limit:
        new = sum(name not in table for name in set(names))
        if new and len(table) + new > limit:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker has {len(table)} {kind} and room for {limit}: delete those that"
                f" nobody needs (rmqadmin {command})",
            )


def check_sizes(kind: str, entries: Mapping[str, object], limit: int = MAX_ENTRY_BYTES) -> None:
    """Raises `RequestError` that names an entry which is larger than one may be."""
    for name, entry in entries.items():
        size = len(_encode(entry))
        if size > limit:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the {kind} {name} takes {size} bytes: shorten its texts and lists, it may have"
                f" {limit}",
            )


def check_list_length(entries: Sized) -> None:
    """Raises `RequestError` for more entries than are made at once."""
    if len(entries) > MAX_LISTED:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"a list of {len(entries)}: send at most {MAX_LISTED} at once",
        )
