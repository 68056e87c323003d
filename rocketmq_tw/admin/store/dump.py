"""`rmqadmin store dump`: records, units of queues, and entries of the index, one in a line."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from itertools import islice
from typing import Any

import rich_click as click

from rocketmq_tw.admin.near_names import did_you_mean
from rocketmq_tw.admin.output import Report, StatusLine, local_time
from rocketmq_tw.admin.store.opening import (
    config_option,
    directory_argument,
    log_option,
    open_store,
)
from rocketmq_tw.admin.tool import Tool, fail
from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.index import ENTRY, HEADER, entry_at
from rocketmq_tw.formats.record import RECORD
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.net.address import join_address
from rocketmq_tw.storecheck.findings import Findings
from rocketmq_tw.storecheck.layout import Store
from rocketmq_tw.storecheck.records import key_hash
from rocketmq_tw.storecheck.stored_queue import StoredQueue

_HEADER = flat(HEADER)
_ENTRY = flat(ENTRY)
_BODY_SHOWN = 200
#: After so many the status is told again.
_ENTRIES_AT_ONCE = 10_000

from_option = click.option(
    "--from", "first", type=click.IntRange(0), metavar="OFFSET", help="Where to begin."
)
count_option = click.option(
    "--count", type=click.IntRange(1), default=32, show_default=True, help="How many at most."
)

Row = dict[str, Any]


@click.group("dump")
def dump() -> None:
    """Shows records, units of a queue, or entries of the index, one in a line."""


def _show(
    tool: Tool,
    rows: Iterator[Row],
    count: int,
    line: Callable[[Row], str],
    nothing: str,
    status: StatusLine | None = None,
) -> None:
    """Shows some rows, and takes `status` away for each; where there are none, the command fails
    with what is not there."""
    is_there = False
    with status or StatusLine() as status:
        for row in islice(rows, count):
            status.clear()
            tool.show(Report(row, lines=[line(row)]))
            is_there = True
    if not is_there:
        fail(nothing)


@dump.command("log")
@directory_argument
@config_option
@log_option
@from_option
@count_option
@click.option("-t", "--topic", metavar="TOPIC", help="Only its messages.")
@click.pass_obj
def dump_log(
    tool: Tool,
    directory: str,
    config_file: str | None,
    log: str | None,
    first: int | None,
    count: int,
    topic: str | None,
) -> None:
    """Shows records of the log in DIR, from the whole one at or behind --from on."""
    store = open_store(directory, config_file, log).store
    what = "no record" if topic is None else f"no record of {topic}"
    nothing = f"the log has {what} from {first or 0} on: store stats shows what it has"
    status = StatusLine()
    records = _records(store, first or 0, topic, status)
    _show(tool, records, count, _record_line, nothing, status)


def _records(store: Store, first: int, topic: str | None, status: StatusLine) -> Iterator[Row]:
    total = max(store.data_size, 1)
    done = max(first - store.log_start, 0)

    def advance(count: int) -> None:
        nonlocal done
        done += count
        status.show(f"reading the log: {min(100 * done // total, 100)} %")

    for walk in store.walks(Findings(lambda finding: None), advance, check_body=False, first=first):
        for record in walk:
            if record.position >= first and topic in (None, record.topic):
                yield _record(store.read(record.size, record.position))


def _record(data: bytes) -> Row:
    fields = RECORD.parse(data)
    try:
        body = {"body": fields.body.decode(), "bodyBase64": None}
    except UnicodeDecodeError:
        body = {"body": None, "bodyBase64": base64.b64encode(fields.body).decode()}
    return {
        "physicalOffset": fields.physical_offset,
        "size": fields.size,
        "topic": fields.topic.decode(errors="replace"),
        "queueId": fields.queue_id,
        "queueOffset": fields.queue_offset,
        "sysFlag": fields.sys_flag,
        "flag": fields.flag,
        "bodyCrc": fields.body_crc,
        "bornTimestamp": fields.born_timestamp,
        "bornHost": join_address(str(ip_address(fields.born_ip)), fields.born_port),
        "storeTimestamp": fields.store_timestamp,
        "storeHost": join_address(str(ip_address(fields.store_ip)), fields.store_port),
        "reconsumeTimes": fields.reconsume_times,
        "preparedTransactionOffset": fields.prepared_transaction_offset,
        "properties": parse_properties(fields.properties),
        **body,
    }


def _record_line(row: Row) -> str:
    body = row["body"] if row["body"] is not None else f"base64 {row['bodyBase64']}"
    return (
        f"{row['physicalOffset']} +{row['size']} {row['topic']}/{row['queueId']}"
        f" {row['queueOffset']} {local_time(row['storeTimestamp'])} {row['properties']}"
        f" {body[:_BODY_SHOWN]}"
    )


def _hint(root: str, topic: str) -> str:
    """Says which queues there are of the topic, or which topic was meant."""
    queues = f"{root}/consumequeue"
    topics = sorted(os.listdir(queues)) if os.path.isdir(queues) else []
    if topic in topics:
        ids = sorted(os.listdir(f"{queues}/{topic}"), key=lambda name: (len(name), name))
        return f"it has {', '.join(ids)}"
    return did_you_mean(topic, topics) or "store stats shows the topics"


@dump.command("queue")
@directory_argument
@click.argument("topic")
@click.argument("queue_id", metavar="QUEUE", type=click.IntRange(0))
@config_option
@log_option
@from_option
@count_option
@click.pass_obj
def dump_queue(
    tool: Tool,
    directory: str,
    topic: str,
    queue_id: int,
    config_file: str | None,
    log: str | None,
    first: int | None,
    count: int,
) -> None:
    """Shows units of a queue of the store in DIR, from the queue offset --from on."""
    store = open_store(directory, config_file, log).store
    queue = StoredQueue(store.root, topic, queue_id, store.sizes)
    if not queue.is_there:
        fail(
            f"{store.root} has no queue {queue_id} of the topic {topic}: {_hint(store.root, topic)}"
        )
    units = (
        {"queueOffset": offset, "physicalOffset": unit[0], "size": unit[1], "tagsCode": unit[2]}
        for offset, unit in queue.units(max(first or 0, queue.begin), queue.end)
    )
    nothing = (
        f"{topic}/{queue_id} has no unit from {first or queue.begin} on: it ends at {queue.end}"
    )
    _show(tool, units, count, _unit_line, nothing)


def _unit_line(row: Row) -> str:
    return (
        f"{row['queueOffset']}: {row['physicalOffset']} +{row['size']} tags code {row['tagsCode']}"
    )


@dump.command("index")
@directory_argument
@config_option
@log_option
@from_option
@count_option
@click.option("--key", metavar="TOPIC#KEY", help="Only entries with the hash of this key.")
@click.pass_obj
def dump_index(
    tool: Tool,
    directory: str,
    config_file: str | None,
    log: str | None,
    first: int | None,
    count: int,
    key: str | None,
) -> None:
    """Shows entries of the index of the store in DIR, from the log offset --from on."""
    store = open_store(directory, config_file, log).store
    wanted = None
    if key is not None:
        topic, separator, name = key.partition("#")
        if not separator:
            raise click.UsageError("--key: give TOPIC#KEY")
        wanted = key_hash(topic, name)
    status = StatusLine()
    entries = (
        row
        for row in _entries(store, status)
        if row["physicalOffset"] >= (first or 0) and wanted in (None, row["keyHash"])
    )
    what = "no entry" if key is None else f"no entry of {key}"
    nothing = f"the index has {what} from {first or 0} on"
    _show(tool, entries, count, _entry_line, nothing, status)


def _entries(store: Store, status: StatusLine) -> Iterator[Row]:
    directory = f"{store.root}/index"
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    names = [name for name in names if name.isdigit()]
    for place, name in enumerate(names, 1):
        with open(f"{directory}/{name}", "rb") as file:
            begin, _, _, _, _, count = _HEADER.unpack(file.read(_HEADER.size))
            file.seek(entry_at(1, store.sizes.index_slots))
            for number in range(1, count):
                if number % _ENTRIES_AT_ONCE == 1:
                    done = 100 * number // count
                    status.show(f"reading the index: file {place} of {len(names)}, {done} %")
                data = file.read(_ENTRY.size)
                if len(data) < _ENTRY.size:
                    break
                key_hash_of, offset, seconds, previous = _ENTRY.unpack(data)
                yield {
                    "file": name,
                    "number": number,
                    "keyHash": key_hash_of,
                    "physicalOffset": offset,
                    "storeTimestamp": begin + 1000 * seconds,
                    "previous": previous,
                }


def _entry_line(row: Row) -> str:
    return (
        f"{row['file']} {row['number']}: hash {row['keyHash']} at {row['physicalOffset']}"
        f" {local_time(row['storeTimestamp'])}, before it {row['previous']}"
    )
