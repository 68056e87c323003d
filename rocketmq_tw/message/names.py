"""Names of topics and groups: what is legal, and the ones that brokers and clients give a meaning.

A topic's name becomes a directory's, so every name from outside passes `check_topic` or
`check_group` before it is kept.
"""

from __future__ import annotations

import re

from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

_MAX_NAME_LENGTH = 127
#: Stock's clients allow 255, but then the group's retry topic could not name a directory.
MAX_GROUP_LENGTH = 255 - len("%RETRY%")

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
#: Begins the topic of a cluster's pop checkpoints.
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
#: The prefix of light queues, which need no topic (`enableLmq`), and of their groups.
LMQ_PREFIX = "%LMQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: The topic of records that are in no queue: with one of them a new leader of a DLedger group
#: commits the entries of former leaders.
LEADER_TOPIC = "RMQ_SYS_DLEDGER_LEADER_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"

#: Topics that clients may not send to.
NOT_FOR_CLIENTS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)

SYSTEM_TOPICS = NOT_FOR_CLIENTS | {
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
    CHECKPOINT_TOPIC,
}
#: Groups that clients and tools of stock have by themselves.
SYSTEM_GROUPS = frozenset(
    (
        "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    )
)  # fmt: skip

_legal = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
_storable = re.compile(r"[%|a-zA-Z0-9_-]+|%RETRY%[%|a-zA-Z0-9_-]+\+[%|a-zA-Z0-9_-]+").fullmatch


def retry_topic(group: str) -> str:
    """Returns where messages that a group sent back wait for it."""
    return RETRY_PREFIX + group


def pop_retry_topic(topic: str, group: str, version: int = 1) -> str:
    """Returns where messages of `topic` wait that `group` popped and did not acknowledge; `version`
    2 is the one whose name can be split again."""
    return f"{RETRY_PREFIX}{group}{'+' if version == 2 else '_'}{topic}"


def popped_topic(topic: str, group: str) -> str:
    """Returns the topic whose messages a pop retry topic of `group` has; another topic is
    itself."""
    for version in (2, 1):
        prefix = pop_retry_topic("", group, version)
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def retry_group(topic: str) -> str:
    """Returns the group that a retry topic belongs to, of pop's second version too."""
    return topic.removeprefix(RETRY_PREFIX).partition("+")[0]


def dlq_topic(group: str) -> str:
    """Returns where messages go that a group failed to consume too often."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Returns where a cluster's replies of request-reply clients are sent."""
    return f"{cluster}_REPLY_TOPIC"


def revive_topic(cluster: str) -> str:
    """Returns where a cluster's pop checkpoints are kept."""
    return REVIVE_PREFIX + cluster


def member_sync_topic(broker_name: str) -> str:
    """Returns the topic through which stock's brokers of one name find each other."""
    return f"rmq_sys_SYNC_BROKER_MEMBER_{broker_name}"


def pair_key(topic: str, group: str) -> str:
    """Returns `topic@group`, as stock writes a pair of them in tables and statistics."""
    return f"{topic}@{group}"


def split_pair(key: str) -> tuple[str, str]:
    """Returns topic and group of a key that `pair_key` made."""
    topic, _, group = key.partition("@")
    return topic, group


def is_legal(name: str) -> bool:
    """Returns whether `name` has only the characters that stock allows; an empty one has not."""
    return _legal(name) is not None


def is_storable(topic: str) -> bool:
    """Returns whether a store may have a topic of this name: a legal one, or a retry topic that
    only the broker makes."""
    return _storable(topic) is not None


def check_topic(topic: str, code: int = ResponseCode.SYSTEM_ERROR) -> None:
    """Raises `RequestError` with `code` unless `topic` may name a topic."""
    _check("topic", topic, _MAX_NAME_LENGTH, code)


def check_group(group: str, code: int = ResponseCode.SYSTEM_ERROR) -> None:
    """Raises `RequestError` with `code` unless `group` may name a group."""
    _check("group", group, MAX_GROUP_LENGTH, code)


def check_length(
    kind: str, text: str, longest: int = 255, code: int = ResponseCode.SYSTEM_ERROR
) -> None:
    """Raises `RequestError` with `code` where `text` is blank or too long to be kept."""
    if not text.strip():
        raise RequestError(code, f"the {kind} is blank: give it a name")
    if len(text) > longest:
        raise RequestError(
            code, f"the {kind} has {len(text)} characters: use at most {longest} of them"
        )


def _check(kind: str, name: str, longest: int, code: int) -> None:
    check_length(kind, name, longest, code)
    if not is_legal(name):
        raise RequestError(
            code,
            f"the {kind} {name!r} has an illegal character: use only %, |, a-z, A-Z, 0-9, _, -",
        )
