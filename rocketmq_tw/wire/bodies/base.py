"""Reads typed bodies from the bytes of a command, and writes them to these.

A body is a `msgspec.Struct` with snake_case attributes; `rename="camel"` gives stock's names, and
`msgspec.field(name=...)` the ones that do not follow. Stock's sets are lists here, in the order of
the wire; its maps are dicts.

Format: docs/formats/bodies.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire import fastjson
from rocketmq_tw.wire.errors import BodyError, TableError, WireError
from rocketmq_tw.wire.object_keys import as_key


class Body(msgspec.Struct, rename="camel", kw_only=True):
    """Base of all bodies and of what they hold. Every field has a default, as in stock."""


class DataVersion(Body):
    """The version of a broker's topics, groups or offsets. It grows with each change; `timestamp`
    is in ms. Stock 4.9.7 has no `state_version`."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """Returns the version after one more change."""
        return DataVersion(state_version=state_version, timestamp=now_ms, counter=self.counter + 1)


V = TypeVar("V")

# A number is its own hash, so a peer that chooses the keys of a `dict[int, …]` can have all of
# them meet, and its making take the square of their count. Text has a hash that nobody can foresee.
if TYPE_CHECKING:
    ByQueue = dict[int, V]
else:
    #: A map by queue id in a body that anybody may send: its keys are read as text, and `by_queue`
    #: makes them numbers.
    ByQueue = dict[str, V]

#: Queues of a topic, of which a map by queue id has no more. They are files, and requests about a
#: topic look at each of them; stock has no limit.
MAX_TOPIC_QUEUES = 4_096
#: Ids stay below this: then even ids that are chosen to meet take 5 ms.
QUEUE_IDS = 16_384


def by_queue(table: ByQueue[V]) -> dict[int, V]:
    """Returns `table` as it was read with numbers as its keys, any other as it is.

    Raises `ValueError` for too many queues and for what is no queue id.
    """
    if type(next(iter(table), 0)) is int:
        return table
    if len(table) > MAX_TOPIC_QUEUES:
        raise ValueError(f"{len(table)} queues: {MAX_TOPIC_QUEUES} is the limit")
    return {_queue_id(key): value for key, value in table.items()}


def _queue_id(key: object) -> int:
    text = str(key)
    if len(text) > 5 or not (text.isascii() and text.isdecimal()) or int(text) >= QUEUE_IDS:
        raise ValueError(f"{text:.20} is no queue id: those are below {QUEUE_IDS}")
    return int(text)


B = TypeVar("B")
T = TypeVar("T", bound=Body)

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


#: Bytes of a request's body that are strict JSON but not of the type, as where a client sends
#: null: they take longer.
TOLERANT_REQUEST_BYTES = 256 * 1024
#: Bytes of a request's body that are read character by character, at up to 2 µs each: more would
#: hold up everyone else. What stock's clients and brokers send is strict JSON but for numbers as
#: keys, and that is read fast.
DIALECT_REQUEST_BYTES = 32 * 1024
#: Values in a request's body that is about one thing, tags and all.
FEW_VALUES = 10_000
#: Numbers as keys in a request's body, at up to 2 µs each. A topic has 4,096 queues.
REQUEST_BARE_KEYS = 20_000


def decode_body(
    body_type: type[B],
    data: bytes,
    *,
    tolerant_bytes: int = 1 << 31,
    max_values: int = fastjson.MAX_VALUES,
    max_bare_keys: int = 1 << 31,
    dialect_bytes: int = 1 << 31,
) -> B:
    """Returns `data` as a `body_type`: unknown fields are left out, null means the field's default,
    and text becomes a number or a boolean where the field is one.

    Raises `BodyError`, which names the field; also for more than `max_values` values, for more than
    `max_bare_keys` bare numbers as keys, and for what is neither strict JSON of the type nor that
    with bare numbers as keys: beyond `tolerant_bytes`, or `dialect_bytes` where it is no strict
    JSON at all.
    """
    try:
        fastjson.check_values(data, max_values)
        if b"$ref" not in data:
            # A dialect, a null or a mistake: the slow way below tells which.
            with suppress(*fastjson.STRICT_ERRORS):
                return _decode_strictly(body_type, data)
            quoted = fastjson.quote_bare_keys(data, max_bare_keys)
            if quoted is not data:
                with suppress(*fastjson.STRICT_ERRORS):
                    return _decode_strictly(body_type, quoted)
        if len(data) > tolerant_bytes:
            raise WireError(f"more than {tolerant_bytes} bytes need to be strict JSON")
        value = fastjson.loads(data, max_values, dialect_bytes)
    except WireError as error:
        raise BodyError(f"the body is no {_name(body_type)}: {error}") from error
    return convert_body(body_type, value)


def decode_request(body_type: type[B], data: bytes, *, max_values: int = fastjson.MAX_VALUES) -> B:
    """Reads the body of a request, which any peer may have sent: `decode_body`, with the slow and
    tolerant way only up to `TOLERANT_REQUEST_BYTES` or `DIALECT_REQUEST_BYTES`. Raises
    `BodyError`."""
    return decode_body(
        body_type,
        data,
        tolerant_bytes=TOLERANT_REQUEST_BYTES,
        max_values=max_values,
        max_bare_keys=REQUEST_BARE_KEYS,
        dialect_bytes=DIALECT_REQUEST_BYTES,
    )


def decode_strict_body(body_type: type[B], data: bytes) -> B:
    """Returns `data`, which is strict JSON of the type, as a `body_type`: what only servers write,
    in one form, but anybody may have sent. Raises `BodyError`, which names the field."""
    try:
        return _decode_strictly(body_type, data)
    except fastjson.STRICT_ERRORS as error:
        raise BodyError(f"the body is no {_name(body_type)}: {error}") from error


def decode_table(body_type: type[B], data: bytes) -> B:
    """Reads a table from a file of one's own or from the own master: `decode_body` however many
    values there are. Raises `TableError`, which says what is wrong and names no type."""
    try:
        return decode_body(body_type, data, max_values=len(data))
    except BodyError as error:
        raise TableError(f"it is no such table in JSON: {error.__cause__}") from error


#: Bytes from which a table is read entry by entry.
_LARGE = 256 * 1024


def decode_by_entry(
    body_type: type[T],
    table: str,
    entry_type: type[Any],
    data: bytes,
    *,
    rest: Callable[[type[T], bytes], T] = decode_table,
) -> T:
    """Returns `data` as a `body_type`, whose field `table` is a dict of `entry_type` and has nearly
    all of it. Where that is large each entry is read by itself, so that other threads get their
    turn; what is small, or needs more tolerance, is read by `rest`. Raises what that raises.
    """
    if len(data) > _LARGE and b"$ref" not in data:
        for text in (lambda: data, lambda: fastjson.quote_bare_keys(data)):
            with suppress(*fastjson.STRICT_ERRORS):
                raw: Any = _decode_strictly(_with_raw_table(body_type, table), text())
                decoder = _decoder(entry_type)
                entries = {name: decoder(entry) for name, entry in getattr(raw, table).items()}
                fields = {name: getattr(raw, name) for name in body_type.__struct_fields__}
                return body_type(**fields | {table: entries})
    return rest(body_type, data)


_raw_types: dict[tuple[Any, str], type[Any]] = {}


def _with_raw_table(body_type: type[Any], table: str) -> type[Any]:
    """Returns `body_type` with the entries of one table left as they are."""
    made = _raw_types.get((body_type, table))
    if made is None:
        raw: Any = msgspec.field(default_factory=dict)
        made = _raw_types[body_type, table] = msgspec.defstruct(
            body_type.__name__,
            [(table, dict[str, msgspec.Raw], raw)],
            bases=(body_type,),
            rename="camel",
            kw_only=True,
        )
    return made


def convert_body(body_type: type[B], value: Any) -> B:
    """Returns a `body_type` out of dicts and lists, as `fastjson.loads` gives them; raises
    `BodyError`."""
    try:
        value = _without_nulls(value)
        try:
            return msgspec.convert(value, body_type, strict=False, str_keys=True)
        except msgspec.ValidationError:
            # Standard JSON has object keys as strings that hold JSON.
            return msgspec.convert(_with_object_keys(value), body_type, strict=False, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BodyError(f"the body is no {_name(body_type)}: {error}") from error


def encode_body(body: object, *, standard_json: bool = False) -> bytes:
    """Returns the body's bytes in fastjson's layout, or in strict JSON for a client that asks for
    it."""
    return fastjson.dumps(body, standard=standard_json)


def _decode_strictly(body_type: type[B], data: bytes) -> B:
    body: B = _decoder(body_type)(data)
    return body


def _decoder(body_type: type[Any]) -> Callable[[bytes | msgspec.Raw], Any]:
    decoder = _decoders.get(body_type)
    if decoder is None:
        decoder = _decoders[body_type] = msgspec.json.Decoder(body_type, strict=False)
    return decoder.decode


def _name(body_type: type) -> str:
    return getattr(body_type, "__name__", str(body_type))


def _without_nulls(value: Any) -> Any:
    """Returns `value` without nulls, and with numbers that stand as keys as text: that becomes a
    number again where the type asks for one."""
    if isinstance(value, dict):
        return {
            str(key) if type(key) is int else key: _without_nulls(item)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def _with_object_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_object_key(key): _with_object_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_object_keys(item) for item in value]
    return value


def _object_key(key: Any) -> Any:
    if not (isinstance(key, str) and key.startswith("{")):
        return key
    try:
        return as_key(fastjson.loads(key.encode()))
    except WireError:
        return key
