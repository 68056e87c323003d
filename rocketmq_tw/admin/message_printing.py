"""printMsg and printMsgByQueue: all messages, one line each, as they are read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from rocketmq_tw.admin.brokers import known_route
from rocketmq_tw.admin.message_reading import (
    ALL_TAGS,
    TOOLS_GROUP,
    UTF_8,
    Moment,
    Span,
    check_charset,
    choose,
    message_line,
    message_row,
    read_each,
)
from rocketmq_tw.admin.options import SWITCH
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.client.routes import subscribe_queues

_charset_option = click.option(
    "-c", "--charsetName", "charset", metavar="CHARSET", default=UTF_8, callback=check_charset,
    help="Of the bodies.",
)  # fmt: skip
_tags_option = click.option(
    "-s", "--subExpression", "expression", metavar="TAGS", default=ALL_TAGS, show_default=True,
    help="Only messages with such a tag: 'A || B'.",
)  # fmt: skip
_begin_option = click.option(
    "-b", "--beginTimestamp", "begin_ms", type=Moment(),
    help="Stored at or after: milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS.",
)  # fmt: skip
_end_option = click.option(
    "-e", "--endTimestamp", "end_ms", type=Moment(), help="Stored at or before."
)
_body_option = click.option(
    "-d", "--printBody", "with_body", **SWITCH, default=True, show_default=True,
    help="With the bodies.",
)  # fmt: skip


@click.command("printMsg")
@topic_option
@_charset_option
@_tags_option
@_begin_option
@_end_option
@_body_option
@click.option(
    "-l", "--lmqParentTopic", "parent", metavar="NAME",
    help="The topic in which a light topic is, whose route is taken.",
)  # fmt: skip
@click.pass_obj
def print_messages(
    tool: Tool,
    topic: str,
    charset: str,
    expression: str,
    begin_ms: int | None,
    end_ms: int | None,
    with_body: bool,
    parent: str | None,
) -> None:
    """Prints all messages of a topic, one line each, queue after queue."""
    span = Span(0, begin_ms, end_ms)

    async def work(servers: Servers) -> None:
        reader = servers.reader(TOOLS_GROUP)
        await known_route(servers, parent or topic)
        queues = await reader.queues(parent or topic)
        if parent is not None:
            queues = subscribe_queues(topic, await reader.session.route(parent))
        async for message in read_each(servers, reader, queues, span, expression=expression):
            servers.status.clear()
            _print(tool, message, charset, with_body)

    tool.run(work)


@click.command("printMsgByQueue")
@topic_option
@click.option("-a", "--brokerName", "broker", required=True, metavar="NAME", help="Its broker.")
@click.option(
    "-i", "--queueId", "queue_id", type=click.IntRange(min=0), required=True, help="The queue."
)
@_charset_option
@_tags_option
@_begin_option
@_end_option
@click.option(
    "-p", "--printMsg", "printed", **SWITCH,
    help="Whether the messages are printed; by default unless tags are counted.",
)  # fmt: skip
@_body_option
@click.option(
    "-f", "--calculate", "counted", **SWITCH, default=False, show_default=True,
    help="Whether messages are counted by tag.",
)  # fmt: skip
@click.pass_obj
def print_messages_of_queue(
    tool: Tool,
    topic: str,
    broker: str,
    queue_id: int,
    charset: str,
    expression: str,
    begin_ms: int | None,
    end_ms: int | None,
    printed: bool | None,
    with_body: bool,
    counted: bool,
) -> None:
    """Prints all messages of a queue, one line each, or counts them by tag."""
    span = Span(0, begin_ms, end_ms)

    async def work(servers: Servers) -> None:
        reader = servers.reader(TOOLS_GROUP)
        await known_route(servers, topic)
        queues = choose(await reader.queues(topic), topic, broker, queue_id)
        tags: Counter[str] = Counter()
        is_printed = printed or (printed is None and not counted)
        async for message in read_each(servers, reader, queues, span, expression=expression):
            tags[message.tags or ""] += 1
            if is_printed:
                servers.status.clear()
                _print(tool, message, charset, with_body)
        if counted:
            rows = [{"tag": tag, "count": count} for tag, count in tags.most_common()]
            tool.show(Report({"tags": rows}, [Listing(_TAGS, rows)]))

    tool.run(work)


_TAGS = (Column("Tag", "tag"), Column("Messages", "count"))


def _print(tool: Tool, message: ReceivedMessage, charset: str, with_body: bool) -> None:
    row: dict[str, Any] = message_row(message, charset)
    if not with_body:
        row = row | {"body": "", "bodyBase64": None}
    tool.show(Report(row, lines=[message_line(row)]))
