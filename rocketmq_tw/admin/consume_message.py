"""consumeMessage: messages that are there, or that come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
import click

from rocketmq_tw.admin.brokers import known_route
from rocketmq_tw.admin.known_names import check_has_group
from rocketmq_tw.admin.message_reading import (
    TOOLS_GROUP,
    Moment,
    Span,
    choose,
    message_line,
    message_row,
    messages_report,
    read_each,
)
from rocketmq_tw.admin.message_template import MessageTemplate, read_template
from rocketmq_tw.admin.output import Column, Listing, Report, Row
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.admin.topic_tail import TopicTail
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.message.names import check_group
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.errors import RequestError

# What opens connections is loaded once it is known whether they need TLS.
if TYPE_CHECKING:
    from rocketmq_tw.client.pull import QueuePuller

#: Messages that are shown by default, as in stock.
_COUNT = 128
_STARTS = (
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("From offset", "offset"),
)


@click.command("consumeMessage")
@topic_option
@click.option("-b", "--brokerName", "broker", metavar="NAME", help="Only this broker, by name.")
@click.option(
    "-i", "--queueId", "queue_id", type=click.IntRange(min=0), help="Only this queue; wants -b."
)
@click.option(
    "-o", "--offset", type=click.IntRange(min=0), help="From this offset of the queue; wants -i."
)
@click.option(
    "-g", "--consumerGroup", "group", default=TOOLS_GROUP, show_default=True, metavar="NAME",
    help="In the name of this group, which brokers are to have; it is not joined, and its offsets"
    " stay as they are.",
)  # fmt: skip
@click.option(
    "-s", "--beginTimestamp", "begin_ms", type=Moment(),
    help="Stored at or after: milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.",
)  # fmt: skip
@click.option("-e", "--endTimestamp", "end_ms", type=Moment(), help="Stored at or before.")
@click.option(
    "-c", "--MessageNumber", "count", type=click.IntRange(min=1),
    help=f"At most so many messages; {_COUNT} by default, with --follow all.",
)  # fmt: skip
@click.option(
    "--follow", is_flag=True,
    help="Show messages that come from now on, or from -s or -o on, until Ctrl-C.",
)  # fmt: skip
@click.option(
    "--format", "template", metavar="TEXT", callback=read_template,
    help="A line for each message, with fields as {topic} {queue} {offset} {keys} {tags} {body}"
    " {properties.NAME}; a wrong one is told with the list of all.",
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
    count: int | None,
    follow: bool,
    template: MessageTemplate | None,
) -> None:
    """Shows messages of a topic, the oldest ones of each queue first; nothing is consumed."""
    if queue_id is not None and broker is None:
        raise click.UsageError("-i names a queue of one broker: name that with -b")
    if offset is not None and queue_id is None:
        raise click.UsageError("-o is an offset of one queue: name that with -b and -i")
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise click.UsageError("-s is after -e: give the earlier time as -s")
    if follow and end_ms is not None:
        raise click.UsageError("--follow goes on until Ctrl-C: leave -e out")
    if template is not None and tool.given.output in ("json", "yaml"):
        raise click.UsageError(
            f"--format is a line of text: leave --output {tool.given.output} out"
        )
    try:
        check_group(group)
    except RequestError as error:
        raise click.UsageError(error.remark) from error
    span = Span(offset or 0, begin_ms, end_ms)

    def in_lines(report: Report, rows: Sequence[Row]) -> Report:
        if template is None:
            return report
        return attrs.evolve(report, formatted=[template.line(row) for row in rows])

    async def check_names(servers: Servers) -> None:
        # Brokers make a group that reads, slaves excepted.
        for data in (await known_route(servers, topic)).broker_datas:
            if MASTER_ID in data.broker_addrs and broker in (None, data.broker_name):
                await check_has_group(servers, data.broker_addrs[MASTER_ID], group)

    async def show_coming(servers: Servers) -> None:
        await check_names(servers)
        tail = TopicTail(
            servers, servers.reader(group), topic,
            broker=broker, queue_id=queue_id, offset=offset, begin_ms=begin_ms,
        )  # fmt: skip
        await tail.start()
        if tool.dry_run:
            tool.show(_plan(topic, tail.offsets))
            return
        shown = 0
        async for message in tail.messages():
            row = message_row(message)
            tool.show(in_lines(Report(row, lines=[message_line(row)]), [row]))
            shown += 1
            if shown == count:
                return

    async def work(servers: Servers) -> Report:
        reader = servers.reader(group)
        await check_names(servers)
        queues = choose(await reader.queues(topic), topic, broker, queue_id)
        found = await _oldest(servers, reader, queues, span, count or _COUNT)
        report = messages_report(found)
        return in_lines(report, report.data["messages"])

    if follow:
        tool.run(show_coming)
    else:
        tool.report(work)


async def _oldest(
    servers: Servers, reader: QueuePuller, queues: Sequence[MessageQueue], span: Span, most: int
) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async for message in read_each(servers, reader, queues, span):
        if len(found) == most:
            return found
        found.append(message)
    return found


def _plan(topic: str, offsets: Mapping[MessageQueue, int]) -> Report:
    rows = [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in sorted(offsets.items())
    ]
    line = f"nothing is changed; messages of {topic} would be shown from there on as they come"
    value = {"dryRun": True, "complete": True, "requests": [], "topic": topic, "queues": rows}
    return Report(value, [Listing(_STARTS, rows)], ["", line])
