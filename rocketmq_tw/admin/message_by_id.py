"""queryMsgById: one message, or what a consumer makes of it."""

from __future__ import annotations

import click

from rocketmq_tw.admin.brokers import brokers_of
from rocketmq_tw.admin.known_names import group_hint
from rocketmq_tw.admin.members import members_at
from rocketmq_tw.admin.message_reading import UTF_8, check_charset, messages_report, queried
from rocketmq_tw.admin.options import SWITCH, of_cluster_option
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.errors import RemotingError


@click.command("queryMsgById")
@click.option("-t", "--topic", metavar="NAME", help="Its topic; an offset message id does without.")
@click.option("-i", "--msgId", "message_id", required=True, metavar="ID", help="One of its ids.")
@click.option("-g", "--consumerGroup", "group", metavar="NAME", help="Whose member consumes it.")
@click.option(
    "-d", "--clientId", "client_id", metavar="ID",
    help="The member that is to consume it once more; wants -g.",
)  # fmt: skip
@click.option("-s", "--sendMessage", "send", **SWITCH, help="true is refused: use sendMessage.")
@click.option("-u", "--unitName", "unit", metavar="NAME", help="For -s; not needed here.")
@click.option(
    "-f", "--bodyFormat", "charset", metavar="CHARSET", default=UTF_8, callback=check_charset,
    help="Of the body.",
)  # fmt: skip
@of_cluster_option
@click.pass_obj
def query_message(
    tool: Tool,
    topic: str | None,
    message_id: str,
    group: str | None,
    client_id: str | None,
    send: bool | None,
    unit: str | None,
    charset: str,
    cluster: str | None,
) -> None:
    """Shows one message, or has a member of a group consume it once more."""
    if send:
        raise click.UsageError("-s: a message is not sent again as it is: use sendMessage")
    member = check_member(group, client_id)
    try:
        parse_offset_message_id(message_id)
    except ValueError as error:
        raise click.UsageError(
            f"-i: {message_id!r} is no message id: give the 32 hex digits (56 with an IPv6 address)"
            " of a message's unique id, with -t, or of its offset message id"
        ) from error

    async def work(servers: Servers) -> Report:
        address, message = await _message_of(servers, topic, message_id, cluster)
        if member is None:
            return messages_report([message], charset)
        return await consumed_once_more(
            servers, address, member, message.topic, message.offset_message_id
        )

    tool.report(work)


async def _message_of(
    servers: Servers, topic: str | None, message_id: str, cluster: str | None
) -> tuple[str, ReceivedMessage]:
    """Returns a message and its broker's address. Both kinds of ids look alike: as an offset
    message id it may name a broker that nobody has, so brokers look for a unique id first unless
    one of them is named."""
    where = parse_offset_message_id(message_id)
    address = join_address(where.host, where.port)
    info = await servers.admin.cluster_info()
    known = {
        name for data in info.broker_addr_table.values() for name in data.broker_addrs.values()
    }
    if address not in known and topic is None:
        fail(
            f"as an offset id {message_id} names {address}, which is no broker of this cluster;"
            " if it is a unique id, give the topic too: -t"
        )
    if address not in known and topic is not None:
        brokers = await brokers_of(servers, topic, cluster)
        found = await queried(servers, brokers, topic, message_id, unique=True)
        if found:
            return brokers[found[0].queue.broker_name], found[0]
    try:
        return address, await servers.admin.view_message(address, where.offset, topic)
    except (RemotingError, BrokerError) as error:
        if address in known:
            raise
        unknown = (
            f"no message of {topic} has the unique id {message_id}; as an offset id it names"
            f" {address}, which is no broker of this cluster ({error})"
        )
        fail(servers.conclusion(unknown), error)


def check_member(group: str | None, client_id: str | None) -> tuple[str, str] | None:
    """Returns group and client id where both are given, None without them."""
    if (group is None) != (client_id is None):
        raise click.UsageError("-g and -d go together: a group and its member")
    return None if group is None or client_id is None else (group, client_id)


async def consumed_once_more(
    servers: Servers, address: str, member: tuple[str, str], topic: str, offset_message_id: str
) -> Report:
    """Has a member of a group consume a message of the broker at `address`; returns what it made
    of it. Ends the command where no member is connected there: some brokers make the group then."""
    group, client_id = member
    if not await members_at(servers, [address], group):
        hint = await group_hint(servers, group)
        fail(f"no consumer of group {group} is connected to {address}: {hint}")
    result = await servers.admin.consume_directly(
        address, group, client_id, topic, offset_message_id
    )
    value = {
        "group": group,
        "clientId": client_id,
        "result": result.consume_result,
        "remark": result.remark,
        "orderly": result.order,
        "milliseconds": result.spent_time_mills,
    }
    line = f"{client_id}: {result.consume_result} after {result.spent_time_mills} ms"
    return Report(value, lines=[line if result.remark is None else f"{line}: {result.remark}"])
