"""sendMessage and consumeMessage."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs
import rich_click as click

from rocketmq_tw.admin.options import SWITCH
from rocketmq_tw.admin.output import Column, Listing, Report, local_time, plain
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.message import Message, PullStatus, ReceivedMessage
from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.message.names import check_group, check_topic
from rocketmq_tw.net.address import join_address
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.errors import RequestError

#: The group that stock's tools read in the name of.
TOOLS_GROUP = "TOOLS_CONSUMER"
_PULL_AT_ONCE = 32
#: Characters of a body that a table shows; JSON has it whole.
_BODY_SHOWN = 200

_moment = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})").fullmatch

broker_help = "Only this broker, by name."


def _choose(
    queues: Sequence[MessageQueue], topic: str, broker: str | None, queue_id: int | None
) -> list[MessageQueue]:
    """Returns the queues that the options name; ends the command where there is none."""
    chosen = [
        queue
        for queue in queues
        if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]
    if not chosen:
        counts: dict[str, int] = {}
        for queue in queues:
            counts[queue.broker_name] = counts.get(queue.broker_name, 0) + 1
        known = ", ".join(f"0-{count - 1} of {name}" for name, count in sorted(counts.items()))
        wanted = broker if queue_id is None else f"queue {queue_id} of {broker}"
        fail(f"topic {topic} has no {wanted}; it has: {known or 'no queues'}")
    return chosen


@click.command("sendMessage")
@topic_option
@click.option("-p", "--body", required=True, metavar="TEXT", help="The body; sent as UTF-8.")
@click.option("-k", "--key", "keys", metavar="KEYS", help="Keys, with blanks between them.")
@click.option("-c", "--tags", metavar="TAG", help="The tag.")
@click.option("-b", "--broker", metavar="NAME", help=broker_help)
@click.option("-i", "--qid", type=click.IntRange(min=0), help="Only this queue; wants -b.")
@click.option(
    "-m",
    "--msgTraceEnable",
    "trace",
    **SWITCH,
    default=False,
    help="Only false: messages are not traced.",
)
@click.pass_obj
def send_message(
    tool: Tool,
    topic: str,
    body: str,
    keys: str | None,
    tags: str | None,
    broker: str | None,
    qid: int | None,
    trace: bool,
) -> None:
    """Sends a message."""
    if qid is not None and broker is None:
        raise click.UsageError("-i names a queue of one broker: name that with -b")
    if trace:
        raise click.UsageError("-m true: messages cannot be traced, leave it out")
    _check_name(check_topic, topic)
    message = Message(topic, body.encode(), tags=tags or None, keys=keys or ())

    async def work(servers: Servers) -> Report:
        return await _send(servers, message, broker, qid)

    tool.report(work)


_SENT = (
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Result", "sendStatus"),
    Column("Message ID", "messageId"),
    Column("Queue offset", "queueOffset"),
)


async def _send(
    servers: Servers, message: Message, broker: str | None, queue_id: int | None
) -> Report:
    producer = servers.producer(f"rmqadmin-{wall_clock_ms()}")
    queue = None
    if broker is not None:
        queues = await producer.queues(message.topic)
        queue = random.choice(_choose(queues, message.topic, broker, queue_id))
    try:
        sending = producer.send(message, queue=queue)
    except (ValueError, RequestError) as error:
        fail(error.remark if isinstance(error, RequestError) else str(error), error)
    result = await sending
    row = {
        "topic": message.topic,
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
        "sendStatus": result.status.name,
        "messageId": result.message_id,
        "offsetMessageId": result.offset_message_id,
    }
    return Report(row, [Listing(_SENT, [row])])


class Moment(click.ParamType):
    """Milliseconds since 1970, or the local time as yyyy-MM-dd#HH:mm:ss:SSS; not after now, which
    `now` may be written as with `takes_now`."""

    name = "TIME"

    def __init__(self, *, takes_now: bool = False) -> None:
        self._takes_now = takes_now

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> int:
        text = str(value).strip()
        if self._takes_now and text == "now":
            return wall_clock_ms()
        found = _moment(text)
        try:
            if found is not None:
                moment = datetime.fromisoformat(f"{found[1]} {found[2]}.{found[3]}")
                timestamp = int(moment.timestamp() * 1000)
            else:
                timestamp = int(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r}: give milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS")
        if not 0 <= timestamp <= wall_clock_ms():
            self.fail(f"{text!r} is not between 1970 and now")
        return timestamp


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


@click.command("consumeMessage")
@topic_option
@click.option("-b", "--brokerName", "broker", metavar="NAME", help=broker_help)
@click.option(
    "-i", "--queueId", "queue_id", type=click.IntRange(min=0), help="Only this queue; wants -b."
)
@click.option(
    "-o", "--offset", type=click.IntRange(min=0), help="From this offset of the queue; wants -i."
)
@click.option(
    "-g", "--consumerGroup", "group", default=TOOLS_GROUP, show_default=True, metavar="NAME",
    help="In the name of this group, which is not joined; its offsets stay as they are.",
)  # fmt: skip
@click.option(
    "-s", "--beginTimestamp", "begin_ms", type=Moment(),
    help="Stored at or after: milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.",
)  # fmt: skip
@click.option("-e", "--endTimestamp", "end_ms", type=Moment(), help="Stored at or before.")
@click.option(
    "-c", "--MessageNumber", "count", type=click.IntRange(min=1), default=128, show_default=True,
    help="At most so many messages.",
)  # fmt: skip
@click.pass_obj
def consume_message(
    tool: Tool,
    topic: str,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
    group: str,
    begin_ms: int | None,
    end_ms: int | None,
    count: int,
) -> None:
    """Shows messages of a topic, the oldest ones of each queue first; nothing is consumed."""
    if queue_id is not None and broker is None:
        raise click.UsageError("-i names a queue of one broker: name that with -b")
    if offset is not None and queue_id is None:
        raise click.UsageError("-o is an offset of one queue: name that with -b and -i")
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise click.UsageError("-s is after -e: give the earlier time as -s")
    _check_name(check_group, group)
    span = Span(offset or 0, begin_ms, end_ms)

    async def work(servers: Servers) -> Report:
        reader = servers.reader(group)
        queues = _choose(await reader.queues(topic), topic, broker, queue_id)
        messages: list[ReceivedMessage] = []
        for queue in queues:
            if len(messages) < count:
                messages += await _read(reader, queue, span, count - len(messages))
        return messages_report(messages)

    tool.report(work)


def _check_name(check: Any, name: str) -> None:
    try:
        check(name)
    except RequestError as error:
        raise click.UsageError(error.remark) from error


async def _read(
    reader: QueuePuller, queue: MessageQueue, span: Span, limit: int
) -> list[ReceivedMessage]:
    """Reads at most `limit` messages of the span that are there now, the oldest first."""
    offset = max(span.offset, await reader.min_offset(queue))
    end = await reader.max_offset(queue)
    if span.begin_ms is not None:
        # Stock 4.9 may answer the one before or after the first that is wanted.
        offset = max(offset, await reader.search_offset(queue, span.begin_ms) - 1)
    wanted: list[ReceivedMessage] = []
    while offset < end and len(wanted) < limit:
        pulled = await reader.pull(
            queue, offset, max_messages=min(_PULL_AT_ONCE, limit - len(wanted) + 1)
        )
        for message in pulled.messages:
            if message.queue_offset >= end or span.ends_before(message):
                return wanted[:limit]
            if not span.starts_after(message):
                wanted.append(message)
        if pulled.next_offset <= offset or pulled.status is PullStatus.NO_NEW_MESSAGE:
            break
        offset = pulled.next_offset
    return wanted[:limit]


def _short(body: str | None) -> str:
    if body is None:
        return "(no text, see --output json)"
    if len(body) <= _BODY_SHOWN:
        return plain(body)
    return f"{plain(body[:_BODY_SHOWN])}... ({len(body)} characters)"


_RECEIVED = (
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Offset", "queueOffset"),
    Column("Stored", "storeTimestamp", local_time),
    Column("Message ID", "messageId"),
    Column("Tags", "tags"),
    Column("Keys", "keys", lambda keys: plain(" ".join(keys))),
    Column("Body", "body", _short),
)


def messages_report(messages: list[ReceivedMessage]) -> Report:
    rows = [_message_row(message) for message in messages]
    count = "1 message" if len(rows) == 1 else f"{len(rows)} messages"
    return Report({"messages": rows}, [Listing(_RECEIVED, rows)], ["", count])


def _message_row(message: ReceivedMessage) -> dict[str, Any]:
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
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
