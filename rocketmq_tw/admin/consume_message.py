"""consumeMessage: messages that are there, or that come."""

from __future__ import annotations

from collections.abc import AsyncIterator

import rich_click as click
from twisted.internet.task import deferLater

from rocketmq_tw.admin.brokers import known_route
from rocketmq_tw.admin.message_reading import (
    TOOLS_GROUP,
    Moment,
    Span,
    choose,
    message_line,
    message_row,
    messages_report,
    read_span,
)
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool, warn
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.message.names import check_group
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.errors import RequestError

#: Messages that are shown by default, as in stock.
_COUNT = 128
#: Seconds until queues that had nothing new are looked at again.
_IDLE_SECONDS = 0.5


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
    help="In the name of this group, which is not joined; its offsets stay as they are.",
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
    try:
        check_group(group)
    except RequestError as error:
        raise click.UsageError(error.remark) from error
    span = Span(offset or 0, begin_ms, end_ms)

    async def show_coming(servers: Servers) -> None:
        reader = servers.reader(group)
        await known_route(servers, topic)
        queues = choose(await reader.queues(topic), topic, broker, queue_id)
        offsets = {queue: await _start(reader, queue, offset, begin_ms) for queue in queues}
        shown = 0
        async for message in _coming(servers, reader, offsets):
            if not span.starts_after(message):
                row = message_row(message)
                tool.show(Report(row, lines=[message_line(row)]))
                shown += 1
                if shown == count:
                    return

    async def work(servers: Servers) -> Report:
        reader = servers.reader(group)
        await known_route(servers, topic)
        queues = choose(await reader.queues(topic), topic, broker, queue_id)
        messages: list[ReceivedMessage] = []
        for queue in queues:
            async for message in read_span(reader, queue, span):
                if len(messages) == (count or _COUNT):
                    return messages_report(messages)
                messages.append(message)
        return messages_report(messages)

    if follow:
        tool.run(show_coming)
    else:
        tool.report(work)


async def _start(
    reader: QueuePuller, queue: MessageQueue, offset: int | None, begin_ms: int | None
) -> int:
    """Returns where a queue is followed from: its end, if nothing else is said."""
    if offset is not None:
        return offset
    if begin_ms is None:
        return await reader.max_offset(queue)
    # Stock 4.9 may answer the one before or after the first that is wanted.
    return max(await reader.min_offset(queue), await reader.search_offset(queue, begin_ms) - 1)


async def _coming(
    servers: Servers, reader: QueuePuller, offsets: dict[MessageQueue, int]
) -> AsyncIterator[ReceivedMessage]:
    """Yields messages as they come into queues, from offsets on; goes on when a broker is back."""
    away = ""
    while True:
        idle = True
        for queue, offset in list(offsets.items()):
            try:
                pulled = await reader.pull(queue, offset)
            except (ClientError, RemotingError) as error:
                if str(error) != away:
                    away = str(error)
                    warn(away)
                continue
            offsets[queue] = pulled.next_offset
            idle = idle and not pulled.messages
            for message in pulled.messages:
                yield message
        if idle:
            await deferLater(servers.reactor, _IDLE_SECONDS)
