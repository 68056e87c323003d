"""Computes how long a group waits before a message is delivered once more, by its retry policy."""

from __future__ import annotations

from rocketmq_tw.config.values import DELAY_LEVELS, delay_levels_ms
from rocketmq_tw.message.properties import FIRST_RETRY_LEVEL
from rocketmq_tw.wire.bodies.groups import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    SubscriptionGroupConfig,
)

#: Stock's delays of groups that have none of their own, in ms: those of the delay levels.
DEFAULT_DELAYS = delay_levels_ms(DELAY_LEVELS)
#: The delay after a first delivery that failed.
_FIRST = FIRST_RETRY_LEVEL - 1
#: Exponents above this are beyond every limit.
_MOST_RETRIES = 32


def retry_delay_ms(group: SubscriptionGroupConfig | None, retries: int) -> int:
    """Returns the delay in ms before a message that was delivered again `retries` times is
    delivered once more; of stock's default where the group says nothing."""
    retries = min(max(retries, 0), _MOST_RETRIES)
    policy = None if group is None else group.group_retry_policy
    if policy is not None and policy.type == "EXPONENTIAL":
        growing = policy.exponential_retry_policy or ExponentialRetryPolicy()
        return int(min(growing.initial * growing.multiplier**retries, growing.max))
    own = (policy and policy.customized_retry_policy) or CustomizedRetryPolicy()
    delays = own.next or DEFAULT_DELAYS
    return delays[min(retries + _FIRST, len(delays) - 1)]
