"""`--dry-run`: what a command would change, without a change; and commands that may only look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from rocketmq_tw.admin.output import Column, Listing, Report, number_of, plain
from rocketmq_tw.admin.request_kinds import Effect, effect_of
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.net.interfaces import Handler, IRemotingClient
from rocketmq_tw.structs import fields as struct_fields
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2

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
        self.lost = remoting.lost
        self.requests: list[dict[str, Any]] = []
        self.is_complete = True

    def request(
        self, address: str, command: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        effect = effect_of(command.code)
        if effect is Effect.LOOKS:
            return self._remoting.request(address, command, timeout)
        self._note(address, command)
        if effect is Effect.TELLS:
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
