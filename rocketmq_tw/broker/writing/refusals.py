"""Refuses messages that ask for what the configuration rules out."""

from __future__ import annotations

from collections.abc import Collection

from rocketmq_tw.broker.writing.asked_for import wants_transaction
from rocketmq_tw.broker.writing.redirects import PropertyRedirect, Stage
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


def refusals(config: BrokerConfig) -> dict[Stage, tuple[Collection[str], PropertyRedirect]]:
    """What rejectTransactionMessage asks for."""

    def reject_transaction(message: StoredMessage, properties: dict[str, str]) -> bool:
        if not config.reject_transaction_message or not wants_transaction(message, properties):
            return False
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"the broker {config.broker_ip1} takes no transactional messages:"
            " rejectTransactionMessage=true",
        )

    return {
        Stage.REJECTION: ((props.TRAN_MSG,), reject_transaction),
    }
