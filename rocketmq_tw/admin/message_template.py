"""`--format`: one line for each message, out of a text with fields in braces."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from rocketmq_tw.admin.message_reading import NO_TEXT
from rocketmq_tw.admin.output import Row, local_time, plain
from rocketmq_tw.structs import msgspec

#: Field to the key of a message's row and how its value is shown.
FIELDS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "topic": ("topic", plain),
    "broker": ("brokerName", plain),
    "queue": ("queueId", plain),
    "offset": ("queueOffset", plain),
    "id": ("messageId", plain),
    "offsetId": ("offsetMessageId", plain),
    "born": ("bornTimestamp", local_time),
    "bornHost": ("bornHost", plain),
    "stored": ("storeTimestamp", local_time),
    "storeHost": ("storeHost", plain),
    "retries": ("reconsumeTimes", plain),
    "tags": ("tags", plain),
    "keys": ("keys", lambda keys: plain(" ".join(keys))),
    "properties": ("properties", lambda found: plain(msgspec.json.encode(found).decode())),
    "body": ("body", lambda body: NO_TEXT if body is None else plain(body)),
}
#: What stands before the name of one property.
_ONE_PROPERTY = "properties."
_part = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")

_Show = Callable[[Row], str]


class MessageTemplate:
    """A text with fields as `{topic}` and `{properties.NAME}`; `{{` and `}}` are braces. Raises
    `ValueError` for one that is none."""

    def __init__(self, text: str) -> None:
        self._parts: list[str | _Show] = []
        begin = 0
        for found in _part.finditer(text):
            self._parts += [text[begin : found.start()], _meaning(found)]
            begin = found.end()
        self._parts.append(text[begin:])

    def line(self, row: Row) -> str:
        """Returns the line of a message's row, its values escaped for terminals, and nothing for
        those that it has not."""
        return "".join(part if isinstance(part, str) else part(row) for part in self._parts)


def _meaning(found: re.Match[str]) -> str | _Show:
    name = found[1]
    if name is None:
        if len(found[0]) == 2:
            return found[0][0]
        raise ValueError(f"{found[0]} stands alone: {{{{ and }}}} are braces in the line")
    if name in FIELDS:
        key, show = FIELDS[name]
        return lambda row: show(row[key])
    own = name.removeprefix(_ONE_PROPERTY)
    if own and own != name:
        return lambda row: plain(row["properties"].get(own))
    fields = ", ".join(FIELDS)
    raise ValueError(f"{{{name}}} is no field; there are: {fields}, {_ONE_PROPERTY}NAME")


def read_template(
    context: click.Context, option: click.Parameter, text: str | None
) -> MessageTemplate | None:
    """Reads a template; the callback of such an option."""
    if text is None:
        return None
    try:
        return MessageTemplate(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
