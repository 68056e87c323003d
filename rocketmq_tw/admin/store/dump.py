"""`rmqadmin store dump`: records, units of queues, and entries of the index, one in a line."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from itertools import islice
from typing import Any

import click

from rocketmq_tw.admin.near_names import did_you_mean
from rocketmq_tw.admin.output import Report, StatusLine, local_time
from rocketmq_tw.admin.store.opening import (
    config_option,
    directory_argument,
    log_option,
    open_store,
    reading,
)
from rocketmq_tw.admin.tool import Tool, fail, warn
from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.index import ENTRY, entry_at
from rocketmq_tw.formats.record import RECORD
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.net.address import join_address
from rocketmq_tw.storecheck.findings import Finding, Findings
from rocketmq_tw.storecheck.index import index_files, whole_files
from rocketmq_tw.storecheck.layout import Store
from rocketmq_tw.storecheck.long_file import directories
from rocketmq_tw.storecheck.queue_tree import is_queue_id, queue_sizes
from rocketmq_tw.storecheck.records import key_hash
from rocketmq_tw.storecheck.stored_queue import StoredQueue

_ENTRY = flat(ENTRY)
_BODY_SHOWN = 200
#: Are read at once; then the status is told again.
_ENTRIES_AT_ONCE = 10_000

#: Findings that leave no record out: where a broker was killed the log may have a torn end, and the
#: index of a DLedger member lack what it has.
_HARMLESS = frozenset({"log-torn", "entry-index"})
_SEE_CHECK = "store check shows what is wrong"

from_option = click.option(
    "--from", "first", type=click.IntRange(0), metavar="OFFSET", help="Where to begin."
)
count_option = click.option(
    "--count", type=click.IntRange(1), default=32, show_default=True, help="How many at most."
)

DumpedRow = dict[str, Any]


@click.group("dump")
def dump() -> None:
    """Shows records, units of a queue, or entries of the index, one in a line."""


def _show(
    tool: Tool,
    store: Store,
    rows: Iterator[DumpedRow],
    count: int,
    line: Callable[[DumpedRow], str],
    status: StatusLine,
) -> bool:
    """Shows some rows, and takes `status` away for each; returns whether there was one."""
    is_there = False
    with status:
        for row in islice(_readable(store, rows), count):
            status.clear()
            tool.show(Report(row, lines=[line(row)]))
            is_there = True
    return is_there


def _readable(store: Store, rows: Iterator[DumpedRow]) -> Iterator[DumpedRow]:
    """Yields rows; ends the command where they cannot be read."""
    with reading(store):
        yield from rows


def _warnings(status: StatusLine) -> Findings:
    """Makes what warns of files, or parts of them, that a dump passes over."""

    def tell(finding: Finding) -> None:
        if finding.kind not in _HARMLESS:
            status.clear()
            warn(finding.line)

    return Findings(tell)


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
    status = StatusLine()
    passed_over = _warnings(status)
    records = _records(store, first or 0, topic, passed_over, status)
    if _show(tool, store, records, count, _record_line, status):
        return
    store.log.check_files(passed_over)
    what = "no record" if topic is None else f"no record of {topic}"
    if passed_over.kinds.keys() - _HARMLESS:
        fail(f"the log has {what} from {first or 0} on where it is whole: {_SEE_CHECK}")
    fail(f"the log has {what} from {first or 0} on: store stats shows what it has")


def _records(
    store: Store, first: int, topic: str | None, passed_over: Findings, status: StatusLine
) -> Iterator[DumpedRow]:
    total = max(store.data_size, 1)
    done = max(first - store.log_start, 0)

    def advance(count: int) -> None:
        nonlocal done
        done += count
        status.show(f"reading the log: {min(100 * done // total, 100)} %")

    for walk in store.walks(passed_over, advance, check_body=False, first=first):
        for record in walk:
            if record.position >= first and topic in (None, record.topic):
                yield _record(store.read(record.size, record.position))


def _record(data: bytes) -> DumpedRow:
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


def _record_line(row: DumpedRow) -> str:
    body = row["body"] if row["body"] is not None else f"base64 {row['bodyBase64']}"
    return (
        f"{row['physicalOffset']} +{row['size']} {row['topic']}/{row['queueId']}"
        f" {row['queueOffset']} {local_time(row['storeTimestamp'])} {row['properties']}"
        f" {body[:_BODY_SHOWN]}"
    )


def _hint(root: str, topic: str) -> str:
    """Says which queues there are of the topic, or which topic was meant."""
    queues = f"{root}/consumequeue"
    topics = list(directories(queues))
    ids = [name for name in directories(f"{queues}/{topic}") if is_queue_id(name)]
    if ids:
        return f"it has {', '.join(sorted(ids, key=int))}"
    if topic in directories(f"{root}/batchconsumequeue"):
        return "its queues are of another kind (BatchCQ), which is not looked at"
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
    status = StatusLine()
    passed_over = _warnings(status)
    with reading(store):
        queue = StoredQueue(store.root, topic, queue_id, queue_sizes(store.root, store.sizes))
        queue.check_files(passed_over)
        if not queue.is_there:
            path = f"{store.root}/consumequeue/{topic}/{queue_id}"
            is_wrong = passed_over.count or (os.path.lexists(path) and not os.path.isdir(path))
            fail(
                f"{store.root} has no queue {queue_id} of the topic {topic}:"
                f" {_SEE_CHECK if is_wrong else _hint(store.root, topic)}"
            )
        begin, end = queue.begin, queue.end
    start = max(first or 0, begin)
    units = (
        {"queueOffset": offset, "physicalOffset": unit[0], "size": unit[1], "tagsCode": unit[2]}
        for offset, unit in queue.units(start, end)
    )
    if not _show(tool, store, units, count, _unit_line, status):
        hint = f": {_SEE_CHECK}" if passed_over.count else ""
        fail(f"{topic}/{queue_id} has no unit from {start} on: it ends at {end}{hint}")


def _unit_line(row: DumpedRow) -> str:
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
    passed_over = _warnings(status)
    entries = (
        row
        for row in _entries(store, passed_over, status)
        if row["physicalOffset"] >= (first or 0) and wanted in (None, row["keyHash"])
    )
    if _show(tool, store, entries, count, _entry_line, status):
        return
    if passed_over.kinds["index-size"] and not store.sizes.are_given:
        raise click.UsageError(
            "files of the index have another size than stock's: give the broker's configuration"
            " with -c"
        )
    what = "no entry" if key is None else f"no entry of {key}"
    hint = f" in files that are whole: {_SEE_CHECK}" if passed_over.count else ""
    fail(f"the index has {what} from {first or 0} on{hint}")


def _entries(store: Store, passed_over: Findings, status: StatusLine) -> Iterator[DumpedRow]:
    names, slots = index_files(store.root), store.sizes.index_slots
    for name, header, descriptor in whole_files(store.root, store.sizes, passed_over):
        place = names.index(name) + 1
        for first in range(1, header.count, _ENTRIES_AT_ONCE):
            done = 100 * first // header.count
            status.show(f"reading the index: file {place} of {len(names)}, {done} %")
            size = min(header.count - first, _ENTRIES_AT_ONCE) * _ENTRY.size
            data = os.pread(descriptor, size, entry_at(first, slots))
            whole = data[: len(data) // _ENTRY.size * _ENTRY.size]
            for number, entry in enumerate(_ENTRY.iter_unpack(whole), first):
                key_hash_of, offset, seconds, previous = entry
                yield {
                    "file": name,
                    "number": number,
                    "keyHash": key_hash_of,
                    "physicalOffset": offset,
                    # It has whole seconds: the message was stored in the one that begins here.
                    "storeTimestamp": header.begin_time + seconds * 1000,
                    "previous": previous,
                }


def _entry_line(row: DumpedRow) -> str:
    return (
        f"{row['file']} {row['number']}: hash {row['keyHash']} at {row['physicalOffset']}"
        f" {local_time(row['storeTimestamp']).partition('.')[0]}, before it {row['previous']}"
    )
