"""sendMessage and consumeMessage."""

from __future__ import annotations

import random
from typing import Any

import rich_click as click

from rocketmq_tw.admin.message_reading import (
    TOOLS_GROUP,
    Moment,
    Span,
    choose,
    messages_report,
    read_span,
)
from rocketmq_tw.admin.options import SWITCH
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.message import Message, ReceivedMessage
from rocketmq_tw.message.names import check_group, check_topic
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.wire.errors import RequestError

broker_help = "Only this broker, by name."


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
        queue = random.choice(choose(queues, message.topic, broker, queue_id))
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
        queues = choose(await reader.queues(topic), topic, broker, queue_id)
        messages: list[ReceivedMessage] = []
        for queue in queues:
            async for message in read_span(reader, queue, span):
                if len(messages) == count:
                    return messages_report(messages)
                messages.append(message)
        return messages_report(messages)

    tool.report(work)


def _check_name(check: Any, name: str) -> None:
    try:
        check(name)
    except RequestError as error:
        raise click.UsageError(error.remark) from error
