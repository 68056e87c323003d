"""Delays of groups before a message is delivered once more."""

from __future__ import annotations

import pytest

from rocketmq_tw.proxy.messaging.backoff import retry_delay_ms
from rocketmq_tw.wire.bodies.groups import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)


@pytest.mark.parametrize(
    ("retries", "seconds"), [(-1, 10), (0, 10), (1, 30), (2, 60), (15, 7200), (1000, 7200)]
)
def test_a_group_without_its_own_has_those_of_the_delay_levels(retries: int, seconds: int) -> None:
    assert retry_delay_ms(None, retries) == seconds * 1000
    assert retry_delay_ms(SubscriptionGroupConfig(), retries) == seconds * 1000


def test_own_delays() -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[1, 2, 3, 4]))
    group = SubscriptionGroupConfig(group_retry_policy=policy)
    assert [retry_delay_ms(group, retries) for retries in range(3)] == [3, 4, 4]


def test_growing_delays() -> None:
    policy = GroupRetryPolicy(
        type="EXPONENTIAL",
        exponential_retry_policy=ExponentialRetryPolicy(initial=100, max=1000, multiplier=3),
    )
    group = SubscriptionGroupConfig(group_retry_policy=policy)
    assert [retry_delay_ms(group, retries) for retries in (0, 1, 2, 3, 10**9)] == [
        100,
        300,
        900,
        1000,
        1000,
    ]
