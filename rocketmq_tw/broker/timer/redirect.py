"""Sends timed messages into the timer's topic (docs/formats/timers.md, "What becomes of a
message").
"""

from __future__ import annotations

from collections.abc import Callable
from random import randrange

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.timer.rules import TimerRules, is_revive_topic
from rocketmq_tw.broker.writing.redirects import Draft
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import MAX_PROPERTIES_LENGTH, join_properties
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Bytes that the delivery adds to a message's properties, and the CRC of its record.
_ADDED_LATER = 160
_NO_LIMIT = (1 << 31) - 1


class TimerRedirect:
    """Checks what a message asks for, and refuses with stock's codes. `number` tells how many
    messages wait for the slot of a time."""

    def __init__(self, host: Host, rules: TimerRules, number: Callable[[int], int]) -> None:
        self._config = host.store_config
        self._now_ms = host.now_ms
        self._rules = rules
        self._number = number

    def redirect(self, draft: Draft) -> bool:
        """Moves a message that asks for a time to come into the timer's topic; see `Redirects`.
        Raises `RequestError` where it cannot have that time."""
        message, properties = draft.message, draft.properties
        if not draft.wants_timer or message.topic == TIMER_TOPIC:
            return False
        config, now = self._config, self._now_ms()
        if is_revive_topic(message.topic):
            # An acting master of another group has sent it, stock's with the time of the check
            # point. The revival wants it at once, and its own time in place of that one.
            properties[props.TIMER_DELIVER_MS] = str(now)
            return False
        if draft.is_batch:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "a batch may not be delayed: send single messages"
            )
        if not config.timer_wheel_enable:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "the broker keeps no messages for a time of their own: timerWheelEnable=false",
            )
        due = props.deliver_ms(properties, now)
        if due is None:
            raise self._illegal("its time is no number")
        if due <= now:
            if props.TIMER_DEL_UNIQKEY in properties:
                raise self._illegal("what it takes back is over")
            return False
        if due - now > config.timer_max_delay_sec * 1000:
            raise self._illegal(f"it is {due - now} ms away")
        out = self._rules.out_ms(due)
        self._control_flow(out)
        properties[props.TIMER_OUT_MS] = str(out)
        properties[props.REAL_TOPIC] = message.topic
        properties[props.REAL_QID] = str(message.queue_id)
        size = len(join_properties(properties))
        if size > MAX_PROPERTIES_LENGTH - _ADDED_LATER:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"properties of {size} bytes leave no room for what a timed message gets:"
                f" send at most {MAX_PROPERTIES_LENGTH - _ADDED_LATER}",
            )
        message.topic, message.queue_id = TIMER_TOPIC, 0
        return True

    def _illegal(self, why: str) -> RequestError:
        most = self._config.timer_max_delay_sec * 1000
        return RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"timer message illegal: {why}; ask for a time at most {most} ms away, and take"
            " messages back before their time",
        )

    def _control_flow(self, slot: int) -> None:
        """Refuses some messages for a slot that has `timerCongestNumEachSlot`, with stock's odds,
        and all for one that has twice as many."""
        most = self._config.timer_congest_num_each_slot
        if most == _NO_LIMIT:
            return
        waiting = self._number(slot)
        if waiting <= most:
            return
        if waiting < 2 * most and randrange(1000) <= 1000 * (waiting - most) / (most + 0.1):
            return
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"timer message is under flow control: {waiting} messages wait for its time, from"
            f" timerCongestNumEachSlot={most} on some are refused and from {2 * most} on all",
        )
