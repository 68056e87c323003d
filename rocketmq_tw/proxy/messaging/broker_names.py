"""Brokers that clients name in queues and receipt handles."""

from __future__ import annotations

from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messaging_pb2 import Code


def check_broker(brokers: IBrokers, name: str) -> None:
    """Raises `StatusError` (BAD_REQUEST, as of stock's proxies) where no such broker is known."""
    if name not in brokers.names():
        raise StatusError(
            Code.BAD_REQUEST,
            f"no broker {name!r} is known here: try again later, unless it is one of another"
            " cluster",
        )
