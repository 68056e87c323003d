"""The figure for monitoring of how long gRPC calls take, by method and status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from rocketmq_tw.metrics.instruments import Histogram
from rocketmq_tw.net.server_metrics import LATENCY_BOUNDS
from rocketmq_tw.proxy.grpc.interfaces import GrpcStatus

_word_begins = re.compile(r"(?<!^)(?=[A-Z])")


class CallResult(NamedTuple):
    """The path of a method that there is, and what a call of it ended with."""

    method: str
    status: GrpcStatus


def call_latency() -> Histogram[CallResult]:
    """Returns the part of stock's `rocketmq_rpc_latency` that is about calls: milliseconds by
    method, such as `send_message`, and gRPC's status. Its `record` is for `GrpcServer`."""
    return Histogram("rocketmq_rpc_latency", LATENCY_BOUNDS, _labels_of, unit="milliseconds")


def _labels_of(result: CallResult | None) -> Mapping[str, str]:
    labels = {"protocol_type": "grpc"}
    if result is not None:
        name = result.method.rpartition("/")[2]
        labels["request_code"] = _word_begins.sub("_", name).lower()
        labels["response_code"] = result.status.name.lower()
    return labels
