"""Adds to each message that comes from a producer the broker's region, whether traces are wanted,
and its cluster (docs/formats/message.md). Answers to sends tell the first two as well."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.memo import remembered
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.properties import join_properties


def answered_properties(config: BrokerConfig) -> Mapping[str, str]:
    """Returns the fields that each answer to a send has of them, as `config` says now."""
    return _answered(config.region_id, config.trace_on)


def own_properties(config: BrokerConfig) -> dict[str, str]:
    """Returns what is stored with each message, as `config` says now."""
    return _own(config.region_id, config.trace_on, config.broker_cluster_name)


def joined_own_properties(config: BrokerConfig) -> bytes:
    """Returns `own_properties` as they stand behind those of a message."""
    return _joined(config.region_id, config.trace_on, config.broker_cluster_name)


@remembered(16)
def _answered(region: str, trace_on: bool) -> Mapping[str, str]:
    return {props.MSG_REGION: region, props.TRACE_ON: "true" if trace_on else "false"}


def _own(region: str, trace_on: bool, cluster: str) -> dict[str, str]:
    return {**_answered(region, trace_on), props.CLUSTER: cluster}


@remembered(16)
def _joined(region: str, trace_on: bool, cluster: str) -> bytes:
    return join_properties(_own(region, trace_on, cluster))
