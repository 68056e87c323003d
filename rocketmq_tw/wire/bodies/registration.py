"""The body of 103: a broker's topics, as JSON or deflated (docs/formats/bodies.md)."""

from __future__ import annotations

import zlib
from contextlib import suppress
from struct import Struct

from rocketmq_tw.inflating import inflater
from rocketmq_tw.structs import field, msgspec
from rocketmq_tw.wire import fastjson
from rocketmq_tw.wire.bodies.base import (
    DIALECT_REQUEST_BYTES,
    TOLERANT_REQUEST_BYTES,
    Body,
    DataVersion,
    decode_body,
    decode_by_entry,
    decode_request,
    encode_body,
)
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable, TopicQueueMappingInfo
from rocketmq_tw.wire.errors import BodyError, WireError

#: Inflated bytes; a topic takes about 60, so this is far beyond any broker.
MAX_INFLATED = 32 * 1024 * 1024
#: A broker creates 100,000 topics at most by itself.
MAX_TOPICS = 250_000
#: Static topics, which somebody moves by hand.
MAX_MAPPINGS = 50_000

_LENGTH = Struct(">i")


class RegisterBrokerBody(Body):
    """Request 103. `filter_server_list` is a leftover of old brokers that clients still get."""

    topic_config_serialize_wrapper: TopicConfigTable = field(default_factory=TopicConfigTable)
    filter_server_list: list[str] = field(default_factory=list)


def decode_registration(data: bytes, *, compressed: bool) -> RegisterBrokerBody:
    """Returns the body of a 103 whose header says `compressed`; stock 4.9.7's form and 5.x's.

    Raises `BodyError`.
    """
    if not compressed:
        body = _decode_json(data)
        table = body.topic_config_serialize_wrapper
        _check_number("topics", len(table.topic_config_table), MAX_TOPICS)
        mappings = table.topic_queue_mapping_info_map or {}
        _check_number("mappings of topics", len(mappings), MAX_MAPPINGS)
        return body
    reader = _Chunks(_inflate(data))
    body = RegisterBrokerBody()
    table = body.topic_config_serialize_wrapper
    table.data_version = decode_request(DataVersion, reader.chunk())
    topics = reader.number()
    _check_number("topics", topics, MAX_TOPICS)
    for _ in range(topics):
        config = decode_topic_line(_text(reader.chunk()))
        table.topic_config_table[config.topic_name] = config
    filter_servers = reader.chunk()
    if filter_servers != b"null":
        body.filter_server_list = decode_request(list[str], filter_servers)
    # 4.9.7 ends here; its version in the command says so as well.
    if not reader.ended:
        table.topic_queue_mapping_info_map = {}
        tolerant = DIALECT_REQUEST_BYTES
        mapped = reader.number()
        _check_number("mappings of topics", mapped, MAX_MAPPINGS)
        for _ in range(mapped):
            chunk = reader.chunk()
            info = decode_body(TopicQueueMappingInfo, chunk, tolerant_bytes=tolerant)
            tolerant -= len(chunk)
            table.topic_queue_mapping_info_map[info.topic or ""] = info
    return body


def _check_number(what: str, number: int, limit: int) -> None:
    if number > limit:
        raise BodyError(f"{number} {what} are registered at once: {limit} is the limit")


class _RawBody(RegisterBrokerBody):
    topic_config_serialize_wrapper: msgspec.Raw = field(default_factory=msgspec.Raw)  # type: ignore[assignment]


_raw_decode = msgspec.json.Decoder(_RawBody, strict=False).decode


def _decode_json(data: bytes) -> RegisterBrokerBody:
    """Decodes the body, topic by topic where there are many."""
    if len(data) > TOLERANT_REQUEST_BYTES and b"$ref" not in data:
        with suppress(*fastjson.STRICT_ERRORS, WireError):
            fastjson.check_values(data)
            raw = _raw_decode(data)
            table = bytes(raw.topic_config_serialize_wrapper)
            return RegisterBrokerBody(
                topic_config_serialize_wrapper=decode_by_entry(
                    TopicConfigTable, "topic_config_table", TopicConfig, table, rest=decode_request
                ),
                filter_server_list=raw.filter_server_list,
            )
    return decode_request(RegisterBrokerBody, data)


def encode_registration(body: RegisterBrokerBody, *, compressed: bool) -> bytes:
    """Returns the bytes of `body`; the deflated form ends with the mappings unless they are
    None."""
    if not compressed:
        return encode_body(body)
    table = body.topic_config_serialize_wrapper
    configs = table.topic_config_table.values()
    parts = [_chunk(encode_body(table.data_version)), _LENGTH.pack(len(configs))]
    parts += [_chunk(encode_topic_line(config).encode()) for config in configs]
    parts.append(_chunk(encode_body(body.filter_server_list)))
    if table.topic_queue_mapping_info_map is not None:
        mappings = table.topic_queue_mapping_info_map.values()
        parts.append(_LENGTH.pack(len(mappings)))
        parts += [_chunk(encode_body(mapping)) for mapping in mappings]
    return zlib.compress(b"".join(parts), 9)


def encode_topic_line(config: TopicConfig) -> str:
    """Returns `config` as words; where there are attributes, a sixth holds them in JSON.

    Stock 5.x writes six words always; 4.9.7 reads no topic but one of exactly five.
    """
    line = (
        f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums}"
        f" {config.perm} {config.topic_filter_type}"
    )
    if not config.attributes:
        return line
    return f"{line} {fastjson.dumps(config.attributes).decode()}"


def decode_topic_line(line: str) -> TopicConfig:
    """Returns the topic that a line of `encode_topic_line` describes; attributes that cannot be
    read are left empty, as stock does."""
    words = line.split(" ")
    if len(words) < 5:
        raise BodyError(f"a registered topic of {len(words)} words where 5 are needed: {line:.80}")
    name, read_queues, write_queues, perm, filter_type = words[:5]
    try:
        config = TopicConfig(
            topic_name=name,
            read_queue_nums=int(read_queues),
            write_queue_nums=int(write_queues),
            perm=int(perm),
            topic_filter_type=filter_type,
        )
    except ValueError as error:
        raise BodyError(f"a number of the registered topic {name:.80} is none: {error}") from error
    if len(words) > 5:
        config.attributes = _attributes(words[5])
    return config


def _attributes(text: str) -> dict[str, str]:
    try:
        return decode_body(dict[str, str], text.encode(), tolerant_bytes=0)
    except BodyError:
        return {}


def _inflate(data: bytes) -> bytes:
    decoder = inflater()
    try:
        inflated = decoder.decompress(data, MAX_INFLATED)
    except zlib.error as error:
        raise BodyError(f"the compressed registration cannot be inflated: {error}") from error
    if not decoder.eof:
        raise BodyError(f"the compressed registration is cut short or beyond {MAX_INFLATED} bytes")
    return inflated


class _Chunks:
    """Numbers and length-prefixed bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._data)

    def number(self) -> int:
        """Returns the next 4-byte count or length; what it counts takes at least a byte each."""
        end = self._at + 4
        if end > len(self._data):
            raise BodyError("the compressed registration ends within a length")
        (number,) = _LENGTH.unpack_from(self._data, self._at)
        self._at = end
        if not 0 <= number <= len(self._data) - end:
            raise BodyError(f"a length of {number} in the compressed registration is out of range")
        return int(number)

    def chunk(self) -> bytes:
        length = self.number()
        start, self._at = self._at, self._at + length
        return self._data[start : self._at]


def _chunk(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"a registered topic that is not UTF-8: {error}") from error
