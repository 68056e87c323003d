"""The directories of queues: which of them a broker takes for queues, and what stands in the way of
one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import attrs

from rocketmq_tw.storecheck.findings import Findings
from rocketmq_tw.storecheck.layout import Sizes
from rocketmq_tw.storecheck.long_file import (
    LongFile,
    directories,
    is_offset,
    names_in,
    tell_no_directory,
    tell_no_file,
    tell_no_name,
)
from rocketmq_tw.storecheck.records import is_topic

_MAX_QUEUE_ID = 0x7FFFFFFF
_DELETED = "deletedqueues"
_FILES = (
    "abort",
    "checkpoint",
    "config/timercheck",
    "deletedtopics",
    "epochFileCheckpoint",
    "timerwheel",
)
#: How the names end of the tables in `config/`, and of their copies in front of `.bak`.
_TABLES = (".json", "timermetrics", "transactionMetrics")
_DIRECTORIES = ("config", _DELETED, "timerlog")
_QUEUES, _EXTENSIONS = "consumequeue", "consumequeue_ext"


def is_queue_id(name: str) -> bool:
    """Returns whether a directory of that name, below a topic's, is a queue."""
    is_number = name.isascii() and name.isdigit() and str(int(name)) == name
    return is_number and int(name) <= _MAX_QUEUE_ID


def queues_below(root: str, kind: str) -> Iterator[tuple[str, int]]:
    """Yields topic and queue id of each queue in `root`/`kind`/topic/queue. A broker passes over
    what has another name, such as somebody's copy of a queue."""
    for topic in directories(f"{root}/{kind}"):
        if is_topic(topic):
            for name in directories(f"{root}/{kind}/{topic}"):
                if is_queue_id(name):
                    yield topic, int(name)


def usual_size_below(root: str, kind: str) -> int:
    """Returns the size that most files have of the queues in `root`/`kind`/topic/queue; 0 without
    any that has bytes."""
    counts: Counter[int] = Counter()
    for topic, queue_id in queues_below(root, kind):
        counts.update(LongFile(root, f"{kind}/{topic}/{queue_id}").sizes.values())
    del counts[0]
    return counts.most_common(1)[0][0] if counts else 0


def queue_sizes(root: str, sizes: Sizes) -> Sizes:
    """Returns the sizes with that of queues' files, which they show themselves where nobody says
    it: all of a store have one."""
    return attrs.evolve(sizes, queue=sizes.queue or usual_size_below(root, "consumequeue"))


def check_kinds(root: str, findings: Findings) -> None:
    """Reports what is a file where a broker has a directory, or the other way: a start, or a
    repair, would end there."""
    for name in _FILES:
        _check_file(root, name, findings)
    for name in names_in(f"{root}/config"):
        if name.removesuffix(".bak").endswith(_TABLES):
            _check_file(root, f"config/{name}", findings)
    for name in _DIRECTORIES:
        _check_directory(root, name, findings)
    for name in names_in(f"{root}/{_DELETED}"):
        _check_directory(root, f"{_DELETED}/{name}", findings)
    for kind in (_QUEUES, _EXTENSIONS):
        _check_directory(root, kind, findings)
        for topic in names_in(f"{root}/{kind}"):
            _check_entry(root, f"{kind}/{topic}", findings, is_known=bool(is_topic(topic)))
            for name in names_in(f"{root}/{kind}/{topic}") if is_topic(topic) else ():
                path = f"{kind}/{topic}/{name}"
                _check_entry(root, path, findings, is_known=is_queue_id(name))
    for topic, queue_id in queues_below(root, _EXTENSIONS):
        directory = f"{_EXTENSIONS}/{topic}/{queue_id}"
        for name in filter(is_offset, names_in(f"{root}/{directory}")):
            _check_file(root, f"{directory}/{name}", findings)


def _check_entry(root: str, path: str, findings: Findings, *, is_known: bool) -> None:
    """Reports a file beside directories, which a broker minds where it has the name of one."""
    if is_known:
        _check_directory(root, path, findings)
    elif not os.path.isdir(f"{root}/{path}"):
        tell_no_name(path, findings)


def _check_directory(root: str, path: str, findings: Findings) -> None:
    if os.path.lexists(f"{root}/{path}") and not os.path.isdir(f"{root}/{path}"):
        tell_no_directory(path, findings)


def _check_file(root: str, path: str, findings: Findings) -> None:
    if os.path.lexists(f"{root}/{path}") and not os.path.isfile(f"{root}/{path}"):
        tell_no_file(path, findings)
