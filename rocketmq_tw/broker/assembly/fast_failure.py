"""Refuses requests that waited too long before they were served (brokerFastFailureEnable).

A round of the reactor serves what had come when it began, so a request that is served late in a
long round has waited at least since then. SYSTEM_BUSY has producers of stock's 5.x try another
broker; for those of 4.9 the send has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zope.interface import implementer

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.interfaces import IPeer, ISelectiveCheck
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Seconds that anything may wait, whatever is configured.
LEAST = 0.005

_SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
_READS = (
    RequestCode.PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
)
_ACKS = (
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
)

#: Request code -> the attribute of the configuration that says how many ms it may wait; others are
#: never refused. Stock also limits what administrators ask, which is how one looks at a broker
#: that has too much to do.
LIMITS: Mapping[int, str] = {
    **dict.fromkeys(_SENDS, "wait_time_mills_in_send_queue"),
    **dict.fromkeys(_READS, "wait_time_mills_in_pull_queue"),
    **dict.fromkeys(_ACKS, "wait_time_mills_in_ack_queue"),
    RequestCode.LITE_PULL_MESSAGE: "wait_time_mills_in_lite_pull_queue",
    RequestCode.HEART_BEAT: "wait_time_mills_in_heartbeat_queue",
    RequestCode.END_TRANSACTION: "wait_time_mills_in_transaction_queue",
}


@implementer(ISelectiveCheck)
class FastFailure:
    """A `RequestCheck`, as `brokerFastFailureEnable` and the limits of `config` want it."""

    codes = frozenset(LIMITS)

    def __init__(self, config: BrokerConfig, waited: Callable[[], float]) -> None:
        """`waited`: how many seconds ago the round of the reactor began."""
        self._config = config
        self._waited = waited

    def lets_all_pass(self) -> bool:
        """See `ISelectiveCheck`."""
        return self._waited() < LEAST or not self._config.broker_fast_failure_enable

    def __call__(self, request: RemotingCommand, peer: IPeer) -> None:
        waited = self._waited()
        if waited < LEAST or not self._config.broker_fast_failure_enable:
            return
        limit = LIMITS.get(request.code)
        if limit is not None and waited * 1000 >= getattr(self._config, limit):
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"the broker is busy, this request waited for {waited * 1000:.0f} ms: send again"
                " later, or to another broker",
            )
