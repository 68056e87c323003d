"""Computes how long a receive waits for messages, and how long they are hidden then."""

from __future__ import annotations

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.messaging.messages import duration_ms
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import Code, Duration

#: The first version of clients that knows ILLEGAL_POLLING_TIME.
_KNOWS_POLLING_TIME = (5, 0, 3)


def poll_ms(
    asked: int | None, left: int | None, version: str, config: ProxyConfig, request_timeout: int = 0
) -> int:
    """Returns how long a broker may hold an empty answer.

    All times are in ms: `asked` is what the client wants to wait, `left` what is left until its
    deadline, `request_timeout` what it gives an ordinary request; None where it does not say.
    Raises `StatusError` where less is left than it wants, or than the shortest poll takes.
    """
    least = config.grpc_client_consumer_min_long_polling_timeout_millis
    most = config.grpc_client_consumer_max_long_polling_timeout_millis
    if asked is None:
        asked = most if left is None else left - request_timeout // 2
    wanted = min(max(asked, least), most)
    if left is None:
        return wanted
    left -= config.long_polling_reserve_time_in_millis
    if left >= wanted:
        return wanted
    if left > 0 and left >= min(asked, least):
        return left
    code = Code.ILLEGAL_POLLING_TIME if _is_new(version) else Code.BAD_REQUEST
    raise StatusError(
        code,
        f"{max(left, 0)} ms are left until the deadline, too few for a long poll of"
        f" {min(max(asked, 0), most)} ms: give the call more time",
    )


def check_invisible_ms(duration: Duration, least: int, config: ProxyConfig) -> int:
    """Returns an invisible time in ms; raises `StatusError` (ILLEGAL_INVISIBLE_TIME) where it is
    shorter than `least` or longer than the configuration allows."""
    found, most = duration_ms(duration), config.max_invisible_time_mills
    if found < least:
        raise StatusError(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is too small: {found} ms, ask for at least {least} ms",
        )
    if 0 < most < found:
        raise StatusError(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is too large: {found} ms, ask for at most {most} ms",
        )
    return found


def _is_new(version: str) -> bool:
    try:
        return tuple(map(int, version.split("."))) >= _KNOWS_POLLING_TIME
    except ValueError:
        return False
