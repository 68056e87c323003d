"""queryCq: the units of a consume queue."""

from __future__ import annotations

import click

from rocketmq_tw.admin.brokers import brokers_of, topic_told
from rocketmq_tw.admin.options import check_broker_address
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option

_UNITS = (
    Column("Index", "index"),
    Column("Log offset", "commitLogOffset"),
    Column("Size", "size"),
    Column("Tags code", "tagsCode"),
    Column("Extension", "extension"),
    Column("Bits", "bitMap"),
    Column("Passes", "passes"),
    Column("Remark", "remark"),
)


@click.command("queryCq")
@topic_option
@click.option("-q", "--queue", type=click.IntRange(min=0), required=True, help="The queue.")
@click.option("-i", "--index", type=click.IntRange(min=0), required=True, help="From this unit on.")
@click.option(
    "-c", "--count", type=click.IntRange(min=1), default=10, show_default=True,
    help="At most so many units.",
)  # fmt: skip
@click.option(
    "-b", "--broker", metavar="HOST:PORT", help="On this broker, else on the topic's first."
)
@click.option(
    "-g", "--consumer", "group", metavar="NAME", help="With what this group's filter makes of them."
)
@click.pass_obj
def query_units(
    tool: Tool,
    topic: str,
    queue: int,
    index: int,
    count: int,
    broker: str | None,
    group: str | None,
) -> None:
    """Shows units of a consume queue, and with a group whether its filter takes them."""
    if broker is not None:
        check_broker_address(broker)

    async def work(servers: Servers) -> Report:
        address = broker
        if address is None:
            address = next(iter((await brokers_of(servers, topic)).values()), None)
        if address is None:
            fail(f"no broker of topic {topic} is there: start one")
        asking = servers.admin.queue_units(address, topic, queue, index, count, group)
        found = await topic_told(servers, topic, asking)
        rows = [
            {
                "index": index + place,
                "commitLogOffset": unit.physic_offset,
                "size": unit.physic_size,
                "tagsCode": unit.tags_code,
                "extension": unit.extend_data_json,
                "bitMap": unit.bit_map,
                "passes": unit.eval,
                "remark": unit.msg,
            }
            for place, unit in enumerate(found.queue_data)
        ]
        value = {
            "address": address,
            "minIndex": found.min_queue_index,
            "maxIndex": found.max_queue_index,
            "subscription": found.subscription_data,
            "filter": found.filter_data,
            "units": rows,
        }
        lines = ["", f"the queue has units {found.min_queue_index} to {found.max_queue_index}"]
        return Report(value, [Listing(_UNITS, rows)], lines)

    tool.report(work)
