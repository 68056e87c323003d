"""queryMsgById: one message, or what a consumer makes of it."""

from __future__ import annotations

import rich_click as click

from rocketmq_tw.admin.message import messages_report
from rocketmq_tw.admin.options import SWITCH
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.net.address import join_address


@click.command("queryMsgById")
@topic_option
@click.option(
    "-i", "--msgId", "message_id", required=True, metavar="ID", help="Its offset message id."
)
@click.option("-g", "--consumerGroup", "group", metavar="NAME", help="Whose member consumes it.")
@click.option(
    "-d", "--clientId", "client_id", metavar="ID",
    help="The member that is to consume it once more; wants -g.",
)  # fmt: skip
@click.option("-s", "--sendMessage", "send", **SWITCH, help="true is refused: use sendMessage.")
@click.option("-u", "--unitName", "unit", metavar="NAME", help="For -s; not needed here.")
@click.option(
    "-f", "--bodyFormat", "charset", metavar="CHARSET", help="Of the body; only UTF-8 is supported."
)
@click.option("-c", "--cluster", metavar="NAME", help="Not needed: the ID names the broker.")
@click.pass_obj
def query_message(
    tool: Tool,
    topic: str,
    message_id: str,
    group: str | None,
    client_id: str | None,
    send: bool | None,
    unit: str | None,
    charset: str | None,
    cluster: str | None,
) -> None:
    """Shows one message, or has a member of a group consume it once more."""
    if send:
        raise click.UsageError("-s: a message is not sent again as it is: use sendMessage")
    if charset is not None and charset.upper() not in ("UTF-8", "UTF8"):
        raise click.UsageError("-f: bodies are shown as UTF-8; --output json has any in base64")
    if (group is None) != (client_id is None):
        raise click.UsageError("-g and -d go together: a group and its member")
    try:
        where = parse_offset_message_id(message_id)
    except ValueError as error:
        raise click.UsageError(f"-i: {error}") from error
    address = join_address(where.host, where.port)

    async def show(servers: Servers) -> Report:
        return messages_report([await servers.admin.view_message(address, where.offset, topic)])

    async def consume(servers: Servers) -> Report:
        assert group is not None and client_id is not None
        result = await servers.admin.consume_directly(address, group, client_id, topic, message_id)
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

    tool.report(show if group is None else consume)
