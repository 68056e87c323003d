"""What a message asks for by its properties."""

from __future__ import annotations

from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


def delay_level(properties: dict[str, str]) -> int:
    """The delay level that a message asks for, 0 for none; `RequestError` for what is no number."""
    text = properties.get(props.DELAY)
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the property {props.DELAY}={text!r} is no level: give a number",
        ) from None


def wants_transaction(message: StoredMessage, properties: dict[str, str]) -> bool:
    """Whether it is to be a half message; one that is given back and waits is none any more."""
    return props.is_true(properties.get(props.TRAN_MSG)) and not (
        message.reconsume_times > 0 and delay_level(properties) > 0
    )


def wants_timer(properties: dict[str, str]) -> bool:
    """Whether a message asks for a time of its own instead of a level."""
    return props.TIMER_OUT_MS not in properties and any(
        name in properties for name in props.TIMER_PROPERTIES
    )
