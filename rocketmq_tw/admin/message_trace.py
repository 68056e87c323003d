"""queryMsgTraceById: who sent a message and who consumed it, as their clients traced it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from rocketmq_tw.admin.brokers import brokers_of
from rocketmq_tw.admin.known_names import topic_hint
from rocketmq_tw.admin.message_reading import MOST_FOUND, Moment, queried
from rocketmq_tw.admin.output import Column, Listing, Report, Row, local_time
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.message.names import TRACE_TOPIC
from rocketmq_tw.net.address import join_address

#: What stock's clients put between the fields of an event, and behind each event.
_FIELD_END, _EVENT_END = "\x01", "\x02"

_EVENTS = (
    Column("Type", "type"),
    Column("Group", "group"),
    Column("Client", "clientHost"),
    Column("Time", "timestamp", local_time),
    Column("Took ms", "milliseconds"),
    Column("Success", "success"),
)


@click.command("queryMsgTraceById")
@click.option("-i", "--msgId", "message_id", required=True, metavar="ID", help="Its unique id.")
@click.option(
    "-t", "--traceTopic", "topic", metavar="NAME", default=TRACE_TOPIC, show_default=True,
    help="Where clients write traces to.",
)  # fmt: skip
@click.option("-b", "--beginTimestamp", "begin_ms", type=Moment(), help="Traced at or after.")
@click.option("-e", "--endTimestamp", "end_ms", type=Moment(), help="Traced at or before.")
@click.option(
    "-c", "--maxNum", "most", type=click.IntRange(min=1), default=MOST_FOUND, show_default=True,
    help="At most so many messages of traces of each broker.",
)  # fmt: skip
@click.pass_obj
def query_trace(
    tool: Tool,
    message_id: str,
    topic: str,
    begin_ms: int | None,
    end_ms: int | None,
    most: int,
) -> None:
    """Shows who sent a message and who consumed it, where their clients trace."""

    async def work(servers: Servers) -> Report:
        if await servers.admin.topic_route(topic) is None:
            others = f"brokers make {TRACE_TOPIC} with traceTopicEnable=true, -t names another one"
            is_named = topic != TRACE_TOPIC
            hint = await topic_hint(servers, topic, others) if is_named else others
            fail(f"there is no topic {topic}, so nobody traced anything: {hint}")
        brokers = await brokers_of(servers, topic)
        found = await queried(
            servers, brokers, topic, message_id, most=most, begin_ms=begin_ms, end_ms=end_ms
        )
        events = [
            event
            for message in found
            for event in events_of(message)
            if event["messageId"] == message_id
        ]
        if not events:
            untraced = (
                f"nobody traced the message {message_id} in {topic}: its clients need"
                " tracing turned on"
            )
            fail(servers.conclusion(untraced))
        _name_consumers(events)
        shown = [event for event in events if event["type"] != "SubBefore"]
        return Report({"events": events}, [Listing(_EVENTS, shown)])

    tool.report(work)


def events_of(message: ReceivedMessage) -> Iterator[dict[str, Any]]:
    """Yields the events that a message of a trace topic tells; what cannot be read is left out."""
    host = join_address(*message.born_host)
    for text in message.body.decode(errors="replace").split(_EVENT_END):
        fields = text.split(_FIELD_END)
        try:
            event = _event(fields)
        except (IndexError, ValueError):
            continue
        if event is not None:
            yield {"type": fields[0], "clientHost": host, **event}


def _event(fields: list[str]) -> Row | None:
    """Returns what the fields of one event say; raises `IndexError` or `ValueError` for fewer or
    other ones."""
    match fields[0]:
        case "Pub":
            # 4.9's first clients tell no offset message id.
            success = fields[12] if len(fields) == 13 else fields[13]
            return {
                "timestamp": int(fields[1]),
                "group": fields[3],
                "topic": fields[4],
                "messageId": fields[5],
                "requestId": None,
                "milliseconds": int(fields[10]),
                "success": success == "true",
            }
        case "SubBefore":
            return {
                "timestamp": int(fields[1]),
                "group": fields[3],
                "topic": None,
                "messageId": fields[5],
                "requestId": fields[4],
                "milliseconds": None,
                "success": None,
            }
        case "SubAfter":
            return {
                "timestamp": int(fields[7]) if len(fields) > 8 else None,
                "group": fields[8] if len(fields) > 8 else None,
                "topic": None,
                "messageId": fields[2],
                "requestId": fields[1],
                "milliseconds": int(fields[3]),
                "success": fields[4] == "true",
            }
        case "EndTransaction" | "Recall":
            return {
                "timestamp": int(fields[1]),
                "group": fields[3],
                "topic": fields[4],
                "messageId": fields[5],
                "requestId": None,
                "milliseconds": None,
                "success": fields[6] == "true" if fields[0] == "Recall" else None,
            }
    return None


def _name_consumers(events: list[dict[str, Any]]) -> None:
    """Fills group and time of the ends of consumption, which older clients tell with the start
    only."""
    starts = {event["requestId"]: event for event in events if event["type"] == "SubBefore"}
    for event in events:
        start = starts.get(event["requestId"])
        if event["type"] == "SubAfter" and start is not None:
            event["group"] = event["group"] or start["group"]
            event["timestamp"] = event["timestamp"] or start["timestamp"]
