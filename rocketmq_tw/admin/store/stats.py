"""`rmqadmin store stats`: what a store has, by topic."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from rocketmq_tw.admin.output import Column, Listing, Report, local_time, number_of
from rocketmq_tw.admin.store.opening import (
    config_option,
    directory_argument,
    log_option,
    open_store,
    progress,
    reading,
)
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.storecheck.findings import Findings

_TOPICS = (
    Column("Topic", "topic"),
    Column("Queues", "queues"),
    Column("Messages", "messages"),
    Column("Bytes", "bytes"),
    Column("Average", "average"),
    Column("Oldest", "oldestTimestamp", local_time),
    Column("Newest", "newestTimestamp", local_time),
)


class _Topic:
    """What the log has of one topic."""

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.queues: set[int] = set()
        self.oldest = 0
        self.newest = 0

    def row(self, name: str) -> dict[str, Any]:
        return {
            "topic": name,
            "queues": len(self.queues),
            "messages": self.messages,
            "bytes": self.size,
            "average": self.size // self.messages,
            "oldestTimestamp": self.oldest,
            "newestTimestamp": self.newest,
        }


@click.command("stats")
@directory_argument
@config_option
@log_option
@click.pass_obj
def stats(tool: Tool, directory: str, config_file: str | None, log: str | None) -> None:
    """Counts what the log in DIR has of each topic, the largest first."""
    store = open_store(directory, config_file, log).store
    topics: dict[str, _Topic] = {}
    sizes: Counter[int] = Counter()
    damaged = Findings(lambda finding: None)
    end = store.log_start
    with reading(store), progress("reading the log", store.data_size) as advance:
        for walk in store.walks(damaged, advance, check_body=False):
            for record in walk:
                topic = topics.get(record.topic)
                if topic is None:
                    topic = topics[record.topic] = _Topic()
                topic.messages += 1
                topic.size += record.size
                topic.queues.add(record.queue_id)
                topic.oldest = topic.oldest or record.store_timestamp
                topic.newest = max(topic.newest, record.store_timestamp)
                sizes[record.size.bit_length()] += 1
            end = walk.end
    store.log.check_files(damaged)
    rows = [topic.row(name) for name, topic in topics.items()]
    rows.sort(key=lambda row: (-row["bytes"], row["topic"]))
    messages = sum(sizes.values())
    data = {
        "store": store.root,
        "logStart": store.log_start,
        "logEnd": end,
        "messages": messages,
        "topics": rows,
        "damages": damaged.count,
        "sizes": [{"below": 1 << bits, "messages": sizes[bits]} for bits in sorted(sizes)],
    }
    lines = [f"{number_of(messages, 'message')} from {store.log_start} to {end}"]
    lines += [f"{sizes[bits]} of less than {1 << bits} bytes" for bits in sorted(sizes)]
    if damaged.count:
        places = number_of(damaged.count, "place")
        lines.append(f"the log is damaged at {places}: `store check` shows what is wrong")
    tool.show(Report(data, [Listing(_TOPICS, rows)], lines))
