"""Remarks of refusals that several rooms give: what is forbidden, and which setting allows it."""

from __future__ import annotations

from rocketmq_tw.config.broker import BrokerConfig


def broker_unreadable(config: BrokerConfig) -> str:
    """Returns the remark for a broker whose `brokerPermission` lacks reading."""
    return f"the broker {config.broker_ip1} may not be read from: its brokerPermission forbids it"


def broker_unwritable(config: BrokerConfig) -> str:
    """Returns the remark for a broker whose `brokerPermission` lacks writing."""
    return f"the broker {config.broker_ip1} may not be written to: its brokerPermission forbids it"


def topic_unreadable(topic: str) -> str:
    """Returns the remark for a topic whose `perm` lacks reading."""
    return (
        f"the topic {topic} may not be read from: its perm forbids it (rmqadmin updateTopic --perm)"
    )


def topic_unwritable(topic: str) -> str:
    """Returns the remark for a topic whose `perm` lacks writing."""
    return (
        f"the topic {topic} may not be written to: its perm forbids it"
        " (rmqadmin updateTopic --perm)"
    )


def group_disabled(group: str) -> str:
    """Returns the remark for a group that may not consume."""
    return f"group {group} may not consume: set its consumeEnable (rmqadmin updateSubGroup)"
