"""Chooses queues, reads messages out of them, and shows them, for commands."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import click

from rocketmq_tw.admin.each_server import ask_each
from rocketmq_tw.admin.output import Column, Listing, Report, local_time, number_of, plain
from rocketmq_tw.admin.tool import Servers, fail
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.message import PullStatus, ReceivedMessage
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.errors import WireError

# What opens connections is loaded once it is known whether they need TLS.
if TYPE_CHECKING:
    from rocketmq_tw.client.pull import QueuePuller

#: The group that stock's tools read in the name of.
TOOLS_GROUP = "TOOLS_CONSUMER"
#: Every message, whatever its tag.
ALL_TAGS = "*"
UTF_8 = "utf-8"
#: Messages that a query is to find at most, as in stock.
MOST_FOUND = 64
JAVA_MAX_LONG = 2**63 - 1
#: The time that stands for the end of each queue.
END = -1
#: What stands for a body that is no text.
NO_TEXT = "(no text, see --output json)"
_PULL_AT_ONCE = 32
#: Characters of a body that a table shows; JSON has it whole.
_BODY_SHOWN = 200

_moment = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})").fullmatch


def check_charset(context: click.Context, option: click.Parameter, name: str) -> str:
    """Checks the name of a charset; the callback of such an option."""
    try:
        return codecs.lookup(name.strip()).name
    except LookupError as error:
        raise click.BadParameter(f"{name!r} is no charset that is known: give UTF-8") from error


def chosen(
    queues: Sequence[MessageQueue], broker: str | None, queue_id: int | None
) -> list[MessageQueue]:
    """Returns the queues that the options name."""
    return [
        queue
        for queue in queues
        if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]


def choose(
    queues: Sequence[MessageQueue], topic: str, broker: str | None, queue_id: int | None
) -> list[MessageQueue]:
    """Returns the queues that the options name; ends the command where there is none."""
    found = chosen(queues, broker, queue_id)
    if not found:
        counts: dict[str, int] = {}
        for queue in queues:
            counts[queue.broker_name] = counts.get(queue.broker_name, 0) + 1
        known = ", ".join(f"0-{count - 1} of {name}" for name, count in sorted(counts.items()))
        wanted = f"queue at {broker}" if queue_id is None else f"queue {queue_id} of {broker}"
        fail(f"topic {topic} has no {wanted}; it has: {known or 'no queues'}")
    return found


class Moment(click.ParamType):
    """Milliseconds since 1970, or the local time as yyyy-MM-dd#HH:mm:ss:SSS. It may be to come,
    as an end often is. With `takes_end` also `now`, and `END`."""

    name = "TIME"

    def __init__(self, *, takes_end: bool = False) -> None:
        self._takes_end = takes_end

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        text = str(value).strip()
        if self._takes_end and text == "now":
            return wall_clock_ms()
        found = _moment(text)
        try:
            if found is not None:
                moment = datetime.fromisoformat(f"{found[1]} {found[2]}.{found[3]}")
                timestamp = int(moment.timestamp() * 1000)
            else:
                timestamp = int(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r}: {self._forms}")
        if self._takes_end and timestamp == END:
            return END
        if not 0 <= timestamp <= JAVA_MAX_LONG:
            self.fail(f"{text!r} is not between 1970 and {JAVA_MAX_LONG} ms later: {self._forms}")
        return timestamp

    @property
    def _forms(self) -> str:
        forms = "give milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS"
        return f"{forms}, or now, or {END} for each queue's end" if self._takes_end else forms


@attrs.frozen
class Span:
    """A span of messages in a queue: from an offset on, stored from `begin_ms` to `end_ms`."""

    offset: int
    begin_ms: int | None
    end_ms: int | None

    def starts_after(self, message: ReceivedMessage) -> bool:
        return self.begin_ms is not None and message.store_timestamp < self.begin_ms

    def ends_before(self, message: ReceivedMessage) -> bool:
        return self.end_ms is not None and message.store_timestamp > self.end_ms


class _Page(NamedTuple):
    """Messages of a span that were pulled together; `percent` of it is read with them."""

    messages: list[ReceivedMessage]
    percent: int


async def _pages(
    reader: QueuePuller, queue: MessageQueue, span: Span, expression: str
) -> AsyncIterator[_Page]:
    """Yields the messages of the span that are there now and that `expression` takes, the oldest
    first."""
    offset = max(span.offset, await reader.min_offset(queue))
    end = await reader.max_offset(queue)
    if span.begin_ms is not None:
        # Stock 4.9 may answer the one before or after the first that is wanted.
        offset = max(offset, await reader.search_offset(queue, span.begin_ms) - 1)
    begin = offset
    while offset < end:
        pulled = await reader.pull(queue, offset, expression=expression, max_messages=_PULL_AT_ONCE)
        within = [
            message
            for message in pulled.messages
            if message.queue_offset < end and not span.ends_before(message)
        ]
        percent = 100 * (min(pulled.next_offset, end) - begin) // (end - begin)
        yield _Page([each for each in within if not span.starts_after(each)], percent)
        is_over = len(within) < len(pulled.messages)
        if is_over or pulled.next_offset <= offset or pulled.status is PullStatus.NO_NEW_MESSAGE:
            return
        offset = pulled.next_offset


async def read_each(
    servers: Servers,
    reader: QueuePuller,
    queues: Sequence[MessageQueue],
    span: Span,
    *,
    expression: str = ALL_TAGS,
) -> AsyncIterator[ReceivedMessage]:
    """Yields the messages of the span in one queue after the other that are there now and that
    `expression` takes, the oldest of each first, and shows how far it is. A broker that does not
    answer is `missing` from then on, and passed over; raises why where it is the only one."""
    # Logic queues are at the brokers that lead them.
    brokers = {
        queue: reader.session.leaders.broker_of(queue) or queue.broker_name for queue in queues
    }
    is_alone = len(set(brokers.values())) == 1
    count = 0
    for number, (queue, broker) in enumerate(brokers.items()):
        if broker in servers.missing:
            continue
        try:
            async for page in _pages(reader, queue, span, expression):
                for message in page.messages:
                    yield message
                count += len(page.messages)
                percent = (100 * number + page.percent) // len(brokers)
                servers.status.show(f"{number_of(count, 'message')} read, {percent} %")
        except (ClientError, RemotingError, WireError) as error:
            if is_alone:
                raise
            servers.miss(broker, error)
    servers.status.clear()


def _short(body: str | None) -> str:
    if body is None:
        return NO_TEXT
    if len(body) <= _BODY_SHOWN:
        return plain(body)
    return f"{plain(body[:_BODY_SHOWN])}... ({len(body)} characters)"


def _whole(body: str | None) -> str:
    return _short(None) if body is None else plain(body)


_RECEIVED = (
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Offset", "queueOffset"),
    Column("Stored", "storeTimestamp", local_time),
    Column("Message ID", "messageId"),
    Column("Tags", "tags"),
    Column("Keys", "keys", lambda keys: plain(" ".join(keys))),
    Column("Body", "body", _short, _whole),
)


def messages_report(messages: Sequence[ReceivedMessage], charset: str = UTF_8) -> Report:
    """Shows messages in a table, one row each, with how many they are."""
    rows = [message_row(message, charset) for message in messages]
    lines = ["", number_of(len(rows), "message")]
    return Report({"messages": rows}, [Listing(_RECEIVED, rows)], lines)


def message_line(row: Mapping[str, Any]) -> str:
    """Makes one line of a message's row, for output that goes on and on."""
    shown = (column.show(row.get(column.key)) for column in _RECEIVED)
    return "  ".join(text or "-" for text in shown)


def message_row(message: ReceivedMessage, charset: str = UTF_8) -> dict[str, Any]:
    """Makes the JSON of a message; `body` is None where it is no text of the charset."""
    try:
        text = message.body.decode(charset)
    except UnicodeError:
        text = None
    return {
        "topic": message.topic,
        "brokerName": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id,
        "bornTimestamp": message.born_timestamp,
        "bornHost": join_address(*message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": join_address(*message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "body": text,
        "bodyBase64": base64.b64encode(message.body).decode() if text is None else None,
    }


async def queried(
    servers: Servers,
    brokers: Mapping[str, str],
    topic: str,
    key: str,
    *,
    most: int = MOST_FOUND,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    unique: bool = False,
) -> list[ReceivedMessage]:
    """Returns messages with a key, or with a unique id, from brokers by name and address: at most
    `most` of each, the oldest first. Asks as `ask_each` does."""
    names = {address: name for name, address in brokers.items()}
    answers = await ask_each(
        servers,
        names,
        lambda address: servers.admin.query_messages(
            address,
            topic,
            key,
            most=most,
            begin_ms=begin_ms or 0,
            end_ms=JAVA_MAX_LONG if end_ms is None else end_ms,
            unique=unique,
        ),
    )
    found = []
    for answer in answers:
        for message in answer.value or ():
            name = names[answer.address]
            message.queue = msgspec.structs.replace(message.queue, broker_name=name)
            found.append(message)
    return sorted(found, key=lambda message: message.store_timestamp)
