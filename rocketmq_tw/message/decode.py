"""What a consumer does with the bytes of a pull response: records become messages."""

from __future__ import annotations

from rocketmq_tw.message.compression import DEFAULT_BODY_LIMIT, compression_type, decompress
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import ReceivedMessage, StoredMessage
from rocketmq_tw.message.properties import UNIQ_KEY, parse_properties
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.message.sysflags import COMPRESSED


def decode_messages(data: bytes, *, body_limit: int = DEFAULT_BODY_LIMIT) -> list[ReceivedMessage]:
    """The messages of the records that stand in `data` one after the other.

    Raises `ValueError` for a damaged record, and for a compressed body that is damaged or unpacks
    to more than `body_limit` bytes.
    """
    return [received(record, body_limit=body_limit) for record in decode_records(data)]


def received(record: StoredMessage, *, body_limit: int = DEFAULT_BODY_LIMIT) -> ReceivedMessage:
    """The message of one record, its body unpacked."""
    body, sys_flag = record.body, record.sys_flag
    if sys_flag & COMPRESSED:
        kind = compression_type(sys_flag)
        assert kind is not None
        body = decompress(body, kind, body_limit)
        sys_flag &= ~COMPRESSED
    properties = parse_properties(record.properties)
    offset_id = offset_message_id(*record.store_host, record.physical_offset)
    return ReceivedMessage(
        topic=record.topic,
        body=body,
        flag=record.flag,
        properties=properties,
        message_id=properties.get(UNIQ_KEY, offset_id),
        offset_message_id=offset_id,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        store_size=record.store_size,
        sys_flag=sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )
