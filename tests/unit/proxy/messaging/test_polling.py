"""How long a receive waits."""

from __future__ import annotations

import pytest

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.messaging.polling import poll_ms
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import Code

CONFIG = ProxyConfig()


@pytest.mark.parametrize(
    ("asked", "left", "request_timeout", "expected"),
    [
        (10_000, 30_000, 0, 10_000),
        (1_000, 30_000, 0, 5_000),
        (60_000, 90_000, 0, 20_000),
        # Where the client says nothing, it is what an ordinary request leaves.
        (None, 13_000, 3_000, 11_500),
        (None, 90_000, 3_000, 20_000),
        # Cut to the deadline, less the way back.
        (15_000, 10_000, 0, 9_900),
        # Less than the shortest poll, as the client wants it.
        (1_000, 4_000, 0, 3_900),
        (0, 1_000, 0, 900),
        (None, None, 0, 20_000),
        (7_000, None, 0, 7_000),
        (-5, None, 0, 5_000),
    ],
)
def test_it_is_what_client_deadline_and_configuration_allow(
    asked: int | None, left: int | None, request_timeout: int, expected: int
) -> None:
    assert poll_ms(asked, left, "5.1.0", CONFIG, request_timeout) == expected


def test_its_limits_are_keys() -> None:
    config = ProxyConfig(
        grpc_client_consumer_min_long_polling_timeout_millis=2_000,
        grpc_client_consumer_max_long_polling_timeout_millis=7_000,
        long_polling_reserve_time_in_millis=300,
    )
    asked = [(1_000, 30_000), (60_000, 30_000), (6_000, 6_000), (None, None)]
    found = [poll_ms(*each, "5.1.0", config) for each in asked]
    assert found == [2_000, 7_000, 5_700, 7_000]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("5.0.3", Code.ILLEGAL_POLLING_TIME),
        ("5.0.10", Code.ILLEGAL_POLLING_TIME),
        ("5.0.2", Code.BAD_REQUEST),
        ("", Code.BAD_REQUEST),
        ("x", Code.BAD_REQUEST),
    ],
)
@pytest.mark.parametrize("left", [4_000, 50, 0, -1])
def test_too_little_time_is_left(version: str, code: int, left: int) -> None:
    with pytest.raises(StatusError) as raised:
        poll_ms(15_000, left, version, CONFIG)
    assert raised.value.code == code
