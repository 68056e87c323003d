"""Rows as messages to send: which columns there may be, and what is wrong with a row."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from rocketmq_tw.client.message import Message
from rocketmq_tw.client.preparing import MAX_MESSAGE_SIZE
from rocketmq_tw.message import properties as names
from rocketmq_tw.message.names import NOT_FOR_CLIENTS, check_topic
from rocketmq_tw.spark.columns import SCHEMA
from rocketmq_tw.spark.errors import OptionError, SparkSourceError
from rocketmq_tw.wire.errors import RequestError

_TEXT = (StringType,)
_NUMBER = (IntegerType, LongType)
#: The columns that become part of a message, with the types they may have.
_WRITTEN: dict[str, tuple[type[DataType], ...]] = {
    "topic": _TEXT,
    "body": (BinaryType, StringType),
    "keys": (StringType, ArrayType),
    "tags": _TEXT,
    "properties": (MapType,),
    "flag": _NUMBER,
    "shardingKey": _TEXT,
    "delayLevel": _NUMBER,
    "delaySeconds": _NUMBER,
    "delayMs": _NUMBER,
    "deliverTimestamp": (LongType, TimestampType),
}
#: What a read gives and a write cannot take over.
_LEFT_OUT = {column.name for column in SCHEMA.fields} - _WRITTEN.keys()
_TIMER_COLUMNS = {"delaySeconds": names.TIMER_DELAY_SEC, "delayMs": names.TIMER_DELAY_MS}
#: Properties that a broker or client sets anew for the message that is sent.
_NOT_COPIED = frozenset(
    {
        names.WAIT,
        names.REAL_TOPIC,
        names.REAL_QID,
        names.TRAN_MSG,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.MSG_REGION,
        names.TRACE_ON,
        names.CLUSTER,
        names.CRC32,
        names.INNER_NUM,
        names.INNER_BASE,
        names.POP_CK,
        names.FIRST_POP_TIME,
    }
)


#: What made a delivered message wait, and what its broker noted of that: a copy would wait anew.
_OF_A_WAIT = frozenset(
    {
        names.DELAY,
        *names.TIMER_PROPERTIES,
        names.TIMER_ENQUEUE_MS,
        names.TIMER_DEQUEUE_MS,
        names.TIMER_ROLL_TIMES,
        names.TIMER_OUT_MS,
        names.TIMER_DELAY_LEVEL,
        names.TIMER_DEL_UNIQKEY,
    }
)


class BadRow(SparkSourceError):
    """A row that cannot become a message; the text says why."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises `OptionError` unless rows of `schema` can become messages."""
    columns = {field.name: field.dataType for field in schema.fields}
    if "body" not in columns:
        raise OptionError("there is no column body: name the column to send so, as text or binary")
    if topic is None and "topic" not in columns:
        raise OptionError("there is neither an option nor a column topic: give one")
    for name, kind in columns.items():
        if name in _LEFT_OUT:
            continue
        if name not in _WRITTEN:
            raise OptionError(
                f"the column {name} means nothing to a message: choose from {', '.join(_WRITTEN)}"
            )
        if not isinstance(kind, _WRITTEN[name]):
            wanted = " or ".join(choice.typeName() for choice in _WRITTEN[name])
            raise OptionError(f"the column {name} is {kind.simpleString()}: make it {wanted}")


def written_columns(names: Sequence[str]) -> list[str]:
    """Returns the columns among `names` that become part of a message; the rest is passed over."""
    return [name for name in names if name in _WRITTEN]


def row_message(row: Mapping[str, Any], topic: str | None) -> Message:
    """Returns the message of a row; `topic` goes over the row's own. Raises `BadRow`."""
    message = Message(
        topic=_topic(row, topic),
        body=_body(row.get("body")),
        tags=row.get("tags") or None,
        keys=_keys(row.get("keys")),
        properties=_properties(row),
        delay_level=row.get("delayLevel") or 0,
        sharding_key=row.get("shardingKey") or None,
        flag=row.get("flag") or 0,
    )
    for name in (names.TAGS, names.KEYS, names.SHARDING_KEY, names.DELAY):
        # Columns decide where there are such columns, also by being null.
        if _COLUMN_OF[name] in row:
            message.properties.pop(name, None)
    if not 0 <= message.delay_level <= 18:
        raise BadRow(f"delayLevel is {message.delay_level}: give 0 to 18")
    return message


_COLUMN_OF = {
    names.TAGS: "tags",
    names.KEYS: "keys",
    names.SHARDING_KEY: "shardingKey",
    names.DELAY: "delayLevel",
}


def _topic(row: Mapping[str, Any], topic: str | None) -> str:
    chosen = topic or row.get("topic")
    if not chosen:
        raise BadRow("topic is null: give the option topic, or one in each row")
    try:
        check_topic(chosen)
    except RequestError as error:
        raise BadRow(error.remark) from error
    if chosen in NOT_FOR_CLIENTS:
        raise BadRow(f"the topic {chosen} is the broker's own: send to another one")
    return str(chosen)


def _body(value: Any) -> bytes:
    if value is None:
        raise BadRow("body is null: filter such rows out, or give them a body")
    body = value.encode() if isinstance(value, str) else bytes(value)
    if not body:
        raise BadRow("body is empty, which brokers refuse: give it at least one byte")
    if len(body) > MAX_MESSAGE_SIZE:
        raise BadRow(f"body has {len(body)} bytes: at most {MAX_MESSAGE_SIZE} are taken")
    return body


def _keys(value: str | Sequence[str] | None) -> str | Sequence[str]:
    if not value:
        return ()
    if not isinstance(value, str):
        for key in value:
            if not key or " " in key:
                raise BadRow(f"keys has {key!r}: a key has no blank and is not empty")
    return value


def _properties(row: Mapping[str, Any]) -> dict[str, str]:
    given = row.get("properties") or {}
    properties = {}
    # Where a message was to go, before its broker had it wait elsewhere.
    has_waited = names.REAL_TOPIC in given
    for name, value in given.items():
        if name in _NOT_COPIED or (has_waited and name in _OF_A_WAIT):
            continue
        if not name or not value:
            raise BadRow(f"properties has {name!r} = {value!r}: neither may be empty")
        for text in (name, value):
            if names.NAME_VALUE_SEPARATOR in text or names.PROPERTY_SEPARATOR in text:
                raise BadRow(f"properties has {name!r} with a byte 1 or 2, which separate them")
        properties[name] = value
    for column, name in _TIMER_COLUMNS.items():
        if row.get(column) is not None:
            properties[name] = str(row[column])
    deliver = row.get("deliverTimestamp")
    if deliver is not None:
        properties[names.TIMER_DELIVER_MS] = str(_milliseconds(deliver))
    size = len(names.join_properties(properties))
    if size > names.MAX_PROPERTIES_LENGTH - _ROOM:
        raise BadRow(
            f"properties have {size} bytes: at most {names.MAX_PROPERTIES_LENGTH - _ROOM} are taken"
        )
    return properties


#: For what the client adds: id, tags, keys and flags.
_ROOM = 4096


def _milliseconds(value: Any) -> int:
    seconds: Callable[[], float] | None = getattr(value, "timestamp", None)
    return int(value) if seconds is None else round(seconds() * 1000)


def is_kept_back(message: Message) -> bool:
    """Returns whether a broker keeps the message back, so that it cannot go in a batch."""
    return bool(message.delay_level) or names.is_delayed(message.properties)
