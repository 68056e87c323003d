"""sendMessage: a message, or one for each line of a file."""

from __future__ import annotations

import os
import random
import stat
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import attrs
import click

from rocketmq_tw.admin.message_reading import choose
from rocketmq_tw.admin.options import SWITCH, PathType
from rocketmq_tw.admin.output import Column, Listing, Report, Row, number_of, plain
from rocketmq_tw.admin.tool import Servers, Tool, explain, fail, warn
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.message import Message, SendStatus
from rocketmq_tw.message.logic_queues import LOGIC_BROKER
from rocketmq_tw.message.names import check_topic
from rocketmq_tw.message.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    DELAY,
    KEYS,
    RESERVED,
    TAGS,
    TIMER_PROPERTIES,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
)
from rocketmq_tw.net.errors import ConnectionLost, RemotingError, RequestTimeout
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import WRITE

# What opens connections is loaded once it is known whether they need TLS.
if TYPE_CHECKING:
    from rocketmq_tw.client.producer import Producer

#: The name that stands for what is typed or piped in.
_STDIN = "-"
#: Properties with an option of their own.
_OPTION_OF = {KEYS: "-k", TAGS: "-c"}
#: Properties that mean something to brokers, and are the sender's to set.
_TAKEN = frozenset((DELAY, *TIMER_PROPERTIES))
_OF_TRANSACTIONS = frozenset(
    (CHECK_IMMUNITY_TIME_IN_SECONDS, TRANSACTION_CHECK_TIMES, TRANSACTION_ID)
)
_NOT_SAFE = {
    SendStatus.FLUSH_DISK_TIMEOUT: "it was not flushed to the disk in time",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "no slave had it in time",
    SendStatus.SLAVE_NOT_AVAILABLE: "there is no slave that has it",
}
_SENT = (
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Result", "sendStatus"),
    Column("Message ID", "messageId"),
    Column("Queue offset", "queueOffset"),
)


class _Body(NamedTuple):
    """What is sent as one message; `percent` of the file is read with it, None where that has no
    size."""

    content: bytes
    percent: int | None = None


@attrs.frozen
class CommonParts:
    """What all messages of a call have in common."""

    topic: str
    tags: str | None
    keys: str
    properties: dict[str, str]

    def message(self, body: bytes) -> Message:
        return Message(
            self.topic, body, tags=self.tags, keys=self.keys or (), properties=dict(self.properties)
        )


def _properties(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{text!r}: give NAME=VALUE")
        if name in found:
            raise click.BadParameter(f"{name} is given twice: a message has one value of it")
        if name in _OPTION_OF:
            raise click.BadParameter(f"{name}: give {_OPTION_OF[name]}")
        if name in (RESERVED | _OF_TRANSACTIONS) - _TAKEN:
            raise click.BadParameter(f"{name} is set by clients and servers: take another name")
        found[name] = value
    return found


@click.command("sendMessage")
@topic_option
@click.option("-p", "--body", metavar="TEXT", help="The body; sent as UTF-8.")
@click.option(
    "--body-file", "path", metavar="FILE",
    type=PathType(exists=True, dir_okay=False, allow_dash=True),
    help="The body is in this file; - is what is typed or piped in.",
)  # fmt: skip
@click.option("--lines", "by_line", is_flag=True, help="Send a message for each line of the file.")
@click.option("-k", "--key", "keys", metavar="KEYS", help="Keys, with blanks between them.")
@click.option("-c", "--tags", metavar="TAG", help="The tag.")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, callback=_properties,
    help="A property; may be given several times.",
)  # fmt: skip
@click.option("-b", "--broker", metavar="NAME", help="Only this broker, by name.")
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
    body: str | None,
    path: str | None,
    by_line: bool,
    keys: str | None,
    tags: str | None,
    properties: dict[str, str],
    broker: str | None,
    qid: int | None,
    trace: bool,
) -> None:
    """Sends a message, or one for each line of a file."""
    tool.only_once("sends messages")
    if (body is None) == (path is None):
        raise click.UsageError("give one of -p, the body, and --body-file, where it is")
    if by_line and path is None:
        raise click.UsageError("--lines is about a file: name it with --body-file, - is stdin")
    if qid is not None and broker is None:
        raise click.UsageError("-i names a queue of one broker: name that with -b")
    if trace:
        raise click.UsageError("-m true: messages cannot be traced, leave it out")
    try:
        check_topic(topic)
    except RequestError as error:
        raise click.UsageError(error.remark) from error
    if path == _STDIN and sys.stdin is None:
        raise click.UsageError("--body-file -: nothing is piped in, stdin is closed")
    common = CommonParts(topic, tags or None, keys or "", properties)
    if body is not None:
        bodies = iter([_Body(body.encode())])
    else:
        bodies = _bodies(path or _STDIN, by_line)

    async def work(servers: Servers) -> None:
        number = sent = 0
        producer = servers.producer(f"rmqadmin-{wall_clock_ms()}")
        for number, each in enumerate(bodies, 1):
            if by_line and not each.content:
                # Brokers take no message without a body.
                continue
            try:
                row = await _send(producer, common.message(each.content), broker, qid)
            except (ClientError, RemotingError, click.ClickException) as error:
                doubt = await _doubt(producer, topic, error)
                if not by_line:
                    if doubt:
                        fail(f"{explain(error)}; {doubt}", error)
                    raise
                if doubt:
                    before = f"; {number_of(sent, 'line')} before it sent" if sent else ""
                    fail(f"line {number}: {explain(error)}; {doubt}{before}", error)
                before = f"{number_of(sent, 'line')} before it" if sent else "no line"
                verb = "is" if sent <= 1 else "are"
                fail(f"line {number}: {explain(error)}; {before} {verb} sent", error)
            sent += 1
            line = "  ".join(plain(row[column.key]) for column in _SENT)
            servers.status.clear()
            tool.show(
                Report(row, lines=[line]) if by_line else Report(row, [Listing(_SENT, [row])])
            )
            reason = _NOT_SAFE.get(SendStatus[row["sendStatus"]])
            if reason is not None:
                fail(f"the message is stored, but {reason} ({row['sendStatus']})")
            if by_line:
                part = "" if each.percent is None else f", {each.percent} %"
                servers.status.show(f"{number_of(sent, 'message')} sent{part}")
        if by_line and number > sent:
            servers.status.clear()
            warn(f"{number_of(number - sent, 'empty line')} of {number} not sent")
        if not number:
            warn(f"{'what is piped in' if path == _STDIN else path} has no line: nothing is sent")

    tool.run(work)


def _bodies(path: str, by_line: bool) -> Iterator[_Body]:
    """Yields a file as it is, or its lines without their ends."""
    try:
        with sys.stdin.buffer if path == _STDIN else open(path, "rb") as file:
            if by_line:
                size, done = _size(file), 0
                for line in file:
                    done += len(line)
                    yield _Body(line.rstrip(b"\r\n"), size and min(100 * done // size, 100))
            else:
                yield _Body(file.read())
    except OSError as error:
        fail(f"{path}: {error.strerror}", error)


def _size(file: BinaryIO) -> int | None:
    """Returns how many bytes a file has; None for a pipe, or where it does not say."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return (status.st_size or None) if stat.S_ISREG(status.st_mode) else None


async def _doubt(producer: Producer, topic: str, error: Exception) -> str:
    """Says that a message without an answer may be stored, and by which broker another one could
    go; nothing where an error leaves no doubt."""
    if not isinstance(error, RequestTimeout | ConnectionLost):
        return ""
    text = "the message may have been stored: look for it before you send it again"
    try:
        route = await producer.session.routes.get(topic)
        queues = await producer.queues(topic)
    except (ClientError, RemotingError):
        # Who is gone now may not hide what is said of the message.
        return text
    if route is None:
        return text
    silent = {
        data.broker_name
        for data in route.broker_datas
        if error.address in data.broker_addrs.values()
    }
    named = {queue.broker_name for queue in queues} - {LOGIC_BROKER}
    others = sorted(named - silent)
    return f"{text}; -b {others[0]} sends to another broker" if others else text


async def _check_writable(producer: Producer, topic: str, broker: str) -> None:
    """Ends the command where a broker has a topic and name servers give it for reading alone."""
    route = await producer.session.routes.get(topic)
    if route is None:
        return
    for data in route.queue_datas:
        if data.broker_name == broker and not data.perm & WRITE:
            fail(
                f"{broker} takes no messages of {topic}, it has no permission to be written to:"
                f" rmqadmin addWritePerm -b {broker} gives it one back, or for this topic alone"
                " updateTopic --perm 6"
            )


async def _send(
    producer: Producer, message: Message, broker: str | None, queue_id: int | None
) -> Row:
    queue = None
    if broker is not None:
        await _check_writable(producer, message.topic, broker)
        queues = await producer.queues(message.topic)
        queue = random.choice(choose(queues, message.topic, broker, queue_id))
    try:
        sending = producer.send(message, queue=queue)
    except (ValueError, RequestError) as error:
        fail(error.remark if isinstance(error, RequestError) else str(error), error)
    result = await sending
    row: dict[str, Any] = {
        "topic": message.topic,
        "brokerName": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
        "sendStatus": result.status.name,
        "messageId": result.message_id,
        "offsetMessageId": result.offset_message_id,
    }
    return row
