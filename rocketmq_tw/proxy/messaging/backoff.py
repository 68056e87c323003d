"""How long a group waits before a message is delivered once more, by its retry policy."""

from __future__ import annotations

from rocketmq_tw.wire.bodies.groups import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    SubscriptionGroupConfig,
)

_MINUTE = 60_000
#: Stock's delays of groups that have none of their own, in ms: those of the delay levels.
DEFAULT_DELAYS = (
    1_000,
    5_000,
    10_000,
    30_000,
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
#: A first delivery that failed waits as long as the third delay says, in stock.
_FIRST = 2
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
