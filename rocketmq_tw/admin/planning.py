"""`--dry-run`: what a command would change, without a change; and commands that may only look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import rich_click as click
from msgspec.structs import fields as struct_fields
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from rocketmq_tw.admin.output import Column, Listing, Report, number_of, plain
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.net.interfaces import Handler, IRemotingClient
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2

#: Requests that change nothing; all others count as changes.
LOOKS = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
    }
)
#: Changes whose answer says something that a command goes on with: what follows is unknown.
_TELLING = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.CONTROLLER_ELECT_MASTER,
    }
)

_REQUESTS = (
    Column("Server", "address"),
    Column("Request", "request"),
    Column("Fields", "fields", lambda fields: plain(" ".join(_shown(fields)))),
    Column("Body", "body"),
)

#: Requests whose fields have letters for names on the wire.
_SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


def _fields(command: RemotingCommand) -> dict[str, Any]:
    """Returns the fields of a request, those of a message under their names and its properties one
    by one."""
    fields: dict[str, Any] = dict(command.ext_fields or {})
    if command.code not in _SENDS:
        return fields
    long_names = {
        field.name: field.encode_name for field in struct_fields(SendMessageRequestHeader)
    }
    names = {
        field.encode_name: long_names.get(field.name, "brokerName")
        for field in struct_fields(SendMessageRequestHeaderV2)
    }
    named = {names.get(letter, letter): value for letter, value in fields.items()}
    return named | {"properties": parse_properties(named.get("properties", ""))}


def _shown(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}={text}" for inner, text in value.items())
        else:
            yield f"{name}={value}"


class Unanswered(Exception):
    """A change was not sent, and the command cannot go on without its answer."""


@implementer(IRemotingClient)
class PlannedChanges:
    """A client that sends requests that look, and notes those that change something."""

    def __init__(self, remoting: IRemotingClient) -> None:
        self._remoting = remoting
        self.requests: list[dict[str, Any]] = []
        self.is_complete = True

    def request(
        self, address: str, command: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        if command.code in LOOKS:
            return self._remoting.request(address, command, timeout)
        self._note(address, command)
        if command.code in _TELLING:
            self.is_complete = False
            return fail(Unanswered())
        return succeed(command.response())

    def send_oneway(self, address: str, command: RemotingCommand) -> Deferred[None]:
        self._note(address, command)
        return succeed(None)

    def register(self, code: int, handler: Handler) -> None:
        self._remoting.register(code, handler)

    def close(self) -> Deferred[None]:
        return self._remoting.close()

    def _note(self, address: str, command: RemotingCommand) -> None:
        try:
            body: str | None = command.body.decode() or None
        except UnicodeDecodeError:
            body = f"({number_of(len(command.body), 'byte')})"
        self.requests.append(
            {
                "address": address,
                "request": _name(command.code),
                "fields": _fields(command),
                "body": body,
            }
        )

    def report(self) -> Report:
        """Returns what would have been sent."""
        rest = "" if self.is_complete else ", and more that depends on the answer"
        return Report(
            {"dryRun": True, "requests": self.requests, "complete": self.is_complete},
            [Listing(_REQUESTS, self.requests)],
            ["", f"nothing is changed; this would be sent{rest}"],
        )


@implementer(IRemotingClient)
class OnlyLooks(PlannedChanges):
    """A client for what is done again and again: a change ends the command."""

    def _note(self, address: str, command: RemotingCommand) -> None:
        raise click.UsageError(
            f"--watch is for commands that only look: this one sends {_name(command.code)}"
        )


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)
