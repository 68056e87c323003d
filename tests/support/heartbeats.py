"""Heartbeats of classic clients."""

from __future__ import annotations

from typing import Any

from rocketmq_tw.wire.bodies.clients import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)


def push_consumer(group: str, *wanted: str | SubscriptionData, **fields: Any) -> ConsumerData:
    """Returns what a push consumer of `group` says of itself; a topic's name alone stands for all
    its messages. `fields` are other fields of `ConsumerData`."""
    return ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model=fields.pop("message_model", "CLUSTERING"),
        subscription_data_set=[
            SubscriptionData(topic=each, sub_string="*") if isinstance(each, str) else each
            for each in wanted
        ],
        **fields,
    )


def heartbeat_of(
    client_id: str, *consumers: ConsumerData, producer: str | None = None, **fields: Any
) -> HeartbeatData:
    """Returns the heartbeat of a client with these consumers, and a producer where its group is
    named. `fields` are other fields of `HeartbeatData`."""
    return HeartbeatData(
        client_id=client_id,
        producer_data_set=[] if producer is None else [ProducerData(group_name=producer)],
        consumer_data_set=list(consumers),
        **fields,
    )
