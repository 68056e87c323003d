"""queryMsgByKey, queryMsgByUniqueKey, queryMsgByOffset, decodeMessageId: messages by name."""

from __future__ import annotations

import click

from rocketmq_tw.admin.brokers import brokers_of, known_route
from rocketmq_tw.admin.message_by_id import check_member, consumed_once_more
from rocketmq_tw.admin.message_reading import (
    MOST_FOUND,
    TOOLS_GROUP,
    UTF_8,
    Moment,
    check_charset,
    choose,
    messages_report,
    queried,
)
from rocketmq_tw.admin.options import of_cluster_option
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.net.address import join_address

#: An id that names a port above is a unique one, which has something else there.
_LARGEST_PORT = 65_535


@click.command("queryMsgByKey")
@topic_option
@click.option("-k", "--msgKey", "key", required=True, metavar="KEY", help="One of its keys.")
@click.option("-b", "--beginTimestamp", "begin_ms", type=Moment(), help="Stored at or after.")
@click.option("-e", "--endTimestamp", "end_ms", type=Moment(), help="Stored at or before.")
@click.option(
    "-m", "--maxNum", "most", type=click.IntRange(min=1), default=MOST_FOUND, show_default=True,
    help="At most so many messages of each broker, which may have a lower limit.",
)  # fmt: skip
@of_cluster_option
@click.pass_obj
def query_by_key(
    tool: Tool,
    topic: str,
    key: str,
    begin_ms: int | None,
    end_ms: int | None,
    most: int,
    cluster: str | None,
) -> None:
    """Shows the messages of a topic that have a key."""

    async def work(servers: Servers) -> Report:
        brokers = await brokers_of(servers, topic, cluster)
        found = await queried(
            servers, brokers, topic, key, most=most, begin_ms=begin_ms, end_ms=end_ms
        )
        if not found:
            fail(servers.conclusion(f"no message of {topic} has the key {key}"))
        return messages_report(found)

    tool.report(work)


@click.command("queryMsgByUniqueKey")
@topic_option
@click.option("-i", "--msgId", "message_id", required=True, metavar="ID", help="Its unique id.")
@click.option("-g", "--consumerGroup", "group", metavar="NAME", help="Whose member consumes it.")
@click.option(
    "-d", "--clientId", "client_id", metavar="ID",
    help="The member that is to consume it once more; wants -g.",
)  # fmt: skip
@click.option("-a", "--showAll", "all_of_them", is_flag=True, help="All that have the id.")
@of_cluster_option
@click.pass_obj
def query_by_unique_key(
    tool: Tool,
    topic: str,
    message_id: str,
    group: str | None,
    client_id: str | None,
    all_of_them: bool,
    cluster: str | None,
) -> None:
    """Shows the message with a unique id, or has a member of a group consume it once more."""
    member = check_member(group, client_id)

    async def work(servers: Servers) -> Report:
        brokers = await brokers_of(servers, topic, cluster)
        found = await queried(servers, brokers, topic, message_id, unique=True)
        if not found:
            fail(servers.conclusion(f"no message of {topic} has the unique id {message_id}"))
        if member is not None:
            address = brokers[found[0].queue.broker_name]
            return await consumed_once_more(
                servers, address, member, topic, found[0].offset_message_id
            )
        return messages_report(found if all_of_them else found[:1])

    tool.report(work)


@click.command("queryMsgByOffset")
@topic_option
@click.option("-b", "--brokerName", "broker", required=True, metavar="NAME", help="Its broker.")
@click.option(
    "-i", "--queueId", "queue_id", type=click.IntRange(min=0), required=True, help="Its queue."
)
@click.option(
    "-o", "--offset", type=click.IntRange(min=0), required=True, help="Its offset in the queue."
)
@click.option(
    "-f", "--bodyFormat", "charset", metavar="CHARSET", default=UTF_8, callback=check_charset,
    help="Of the body.",
)  # fmt: skip
@click.pass_obj
def query_by_offset(
    tool: Tool, topic: str, broker: str, queue_id: int, offset: int, charset: str
) -> None:
    """Shows the message at an offset of a queue."""

    async def work(servers: Servers) -> Report:
        reader = servers.reader(TOOLS_GROUP)
        await known_route(servers, topic)
        (queue,) = choose(await reader.queues(topic), topic, broker, queue_id)
        pulled = await reader.pull(queue, offset, max_messages=1)
        found = [message for message in pulled.messages if message.queue_offset == offset]
        if not found:
            fail(
                f"there is no message at {offset} of queue {queue_id} of {broker}: it begins at"
                f" {pulled.min_offset}, and {pulled.max_offset} comes next"
            )
        return messages_report(found, charset)

    tool.report(work)


@click.command("decodeMessageId")
@click.option(
    "-i", "--messageId", "message_id", required=True, metavar="ID", help="An offset message id."
)
@click.pass_obj
def decode_message_id(tool: Tool, message_id: str) -> None:
    """Says which broker an offset message id names, and where in its log the message is."""
    tool.only_once("asks no server")
    try:
        where = parse_offset_message_id(message_id.strip())
    except ValueError as error:
        raise click.UsageError(f"-i: {error}") from error
    if not 0 < where.port <= _LARGEST_PORT:
        raise click.UsageError(
            f"-i: {message_id.strip()} is a unique id, which a client at {where.host} made: it"
            " names no broker; queryMsgByUniqueKey finds its message"
        )
    address = join_address(where.host, where.port)
    tool.show(
        Report(
            {"address": address, "commitLogOffset": where.offset},
            lines=[f"broker {address}, offset {where.offset} of its log"],
        )
    )
