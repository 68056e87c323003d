"""sendMsgStatus, checkMsgSendRT, clusterRT: how long sends take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import click

from rocketmq_tw.admin.brokers import check_broker_name, in_cluster
from rocketmq_tw.admin.options import SWITCH
from rocketmq_tw.admin.output import Column, Listing, Report, number_of, plain
from rocketmq_tw.admin.repeating import rounds_option, show_repeatedly
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.message import Message
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.clock import wall_clock_ms

_SENDS = (
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Result", "sendStatus"),
    Column("Message ID", "messageId"),
    Column("ms", "milliseconds"),
    Column("Error", "error"),
)
_ROUNDS = (
    Column("Cluster", "cluster"),
    Column("Broker", "brokerName"),
    Column("Average ms", "average"),
    Column("Sent", "sent"),
    Column("Failed", "failed"),
)


def _amount_option(letter: str, name: str, default: int) -> Callable[[Any], Any]:
    return click.option(
        f"-{letter}", f"--{name}", "amount", type=click.IntRange(min=1), default=default,
        show_default=True, help="So many messages.",
    )  # fmt: skip


def _size_option(name: str) -> Callable[[Any], Any]:
    return click.option(
        "-s", f"--{name}", "size", type=click.IntRange(min=1), default=128, show_default=True,
        help="Bytes of a body.",
    )  # fmt: skip


@click.command("sendMsgStatus")
@click.option(
    "-b", "--brokerName", "broker", required=True, metavar="NAME",
    help="The broker; the messages go to the topic of its name.",
)  # fmt: skip
@_size_option("messageSize")
@_amount_option("c", "count", 50)
@click.pass_obj
def send_status(tool: Tool, broker: str, size: int, amount: int) -> None:
    """Sends messages to a broker, and shows how each was taken and how long it took."""

    async def work(servers: Servers) -> Report:
        # A topic of any name would be made.
        await check_broker_name(servers, broker)
        return await _timed(servers, broker, amount, size)

    tool.report(work)


@click.command("checkMsgSendRT")
@topic_option
@_amount_option("a", "amount", 100)
@_size_option("size")
@click.pass_obj
def check_send_times(tool: Tool, topic: str, amount: int, size: int) -> None:
    """Sends messages to the queues of a topic in turn, and shows how long each took."""
    tool.report(lambda servers: _timed(servers, topic, amount, size))


async def _timed(servers: Servers, topic: str, amount: int, size: int) -> Report:
    rows = await _send_all(servers, topic, amount, size)
    average = _average(rows)
    if all(row["error"] is not None for row in rows):
        fail(f"none of {number_of(amount, 'message')} was taken; the last one: {rows[-1]['error']}")
    value = {"topic": topic, "sends": rows, "average": average}
    return Report(value, [Listing(_SENDS, rows)], ["", f"average: {plain(average)} ms"])


async def _send_all(servers: Servers, topic: str, amount: int, size: int) -> list[dict[str, Any]]:
    """Sends one message after the other, to the topic's queues in turn; returns how it went."""
    producer = servers.producer(f"rmqadmin-{wall_clock_ms()}")
    message = Message(topic, b"a" * size)
    rows = []
    for _ in servers.status.each(range(amount), "message"):
        begun = servers.reactor.seconds()
        row: dict[str, Any] = dict.fromkeys(("brokerName", "queueId", "sendStatus", "messageId"))
        error = None
        try:
            result = await producer.send(message)
        except (ClientError, RemotingError) as failure:
            error = str(failure)
        else:
            row = {
                "brokerName": result.queue.broker_name,
                "queueId": result.queue.queue_id,
                "sendStatus": result.status.name,
                "messageId": result.message_id,
            }
        took = 1000 * (servers.reactor.seconds() - begun)
        rows.append({**row, "milliseconds": took, "error": error})
    return rows


def _average(rows: list[dict[str, Any]]) -> float | None:
    """Returns the average in ms, without the first one, which also connects."""
    times = [row["milliseconds"] for row in rows[1:]]
    return sum(times) / len(times) if times else None


@click.command("clusterRT")
@_amount_option("a", "amount", 100)
@_size_option("size")
@click.option("-c", "--cluster", metavar="NAME", help="Only this cluster.")
@click.option(
    "-p", "--printLog", "as_log", **SWITCH, default=False, show_default=True,
    help="Whether it prints lines for a log: time|room|cluster|broker|ms.",
)  # fmt: skip
@click.option(
    "-m", "--machineRoom", "room", metavar="NAME", default="noname", show_default=True,
    help="The room in such a line.",
)  # fmt: skip
@click.option(
    "-i", "--interval", type=click.IntRange(min=1), default=10, show_default=True,
    help="Seconds between two rounds.",
)  # fmt: skip
@rounds_option("rounds")
@click.pass_obj
def cluster_times(
    tool: Tool,
    amount: int,
    size: int,
    cluster: str | None,
    as_log: bool,
    room: str,
    interval: int,
    rounds: int | None,
) -> None:
    """Sends messages to the brokers of clusters again and again, and shows how long that takes."""

    async def look(servers: Servers) -> Report:
        rows = await _round(servers, cluster, amount, size)
        if as_log:
            return Report({"brokers": rows}, lines=[_log_line(room, row) for row in rows])
        return Report({"brokers": rows}, [Listing(_ROUNDS, rows)])

    show_repeatedly(tool, interval, look, rounds=rounds)


async def _round(
    servers: Servers, cluster: str | None, amount: int, size: int
) -> list[dict[str, Any]]:
    info = await servers.admin.cluster_info()
    rows = []
    for name in sorted(info.cluster_addr_table) if cluster is None else [cluster]:
        for data in in_cluster(info, name):
            sends = await _send_all(servers, data.broker_name, amount, size)
            failed = sum(row["error"] is not None for row in sends)
            rows.append(
                {
                    "cluster": name,
                    "brokerName": data.broker_name,
                    "average": _average(sends),
                    "sent": amount - failed,
                    "failed": failed,
                }
            )
    return rows


def _log_line(room: str, row: Mapping[str, Any]) -> str:
    now = datetime.now().isoformat(" ", "seconds")
    average = "" if row["average"] is None else str(round(row["average"]))
    return "|".join((now, room, row["cluster"], row["brokerName"], average))
