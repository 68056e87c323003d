"""Behaviours of those who filter: long and slow expressions, asked by pulls and by pops."""

from __future__ import annotations

import time
from collections.abc import Callable

from rocketmq_tw.wire.codes import RequestCode
from tests.support.load import encode_batch, send_request
from tests.support.remoting import Connection
from tools.hostile.attack import Attack, frame
from tools.hostile.reading import pull

_TOPIC = "filtered"
#: Characters of an expression, and tests, that the broker takes at most.
_LONGEST = 8192
_MOST_TESTS = 256
#: What the messages have that slow expressions search.
_PROPERTY = b"a\1" + b"x" * 8000 + b"\2"
_HELD = 2_000
_FOR_EVER = 1 << 40


def new_texts(attack: Attack) -> None:
    """Pulls and pops of 200 connections, each with a new expression that is as long as may be."""
    _send(attack)

    def request() -> bytes:
        number = attack.dice.getrandbits(64)
        text = f"a{number:x} IN ('{attack.done}'"
        text += ",'x'" * ((_LONGEST - len(text) - 1) // 4) + ")"
        if attack.done % 2:
            return frame(RequestCode.POP_MESSAGE, _pop("hostile-0", text))
        return frame(RequestCode.PULL_MESSAGE, _pull(text, offset=0))

    attack.flood(attack.target.broker, 200, request)


def slow_pulls(attack: Attack) -> None:
    """Held pulls with 256 tests of long properties each, woken by every message that comes."""
    texts = [_slow(number) for number in range(8)]

    def request(number: int, end: int) -> bytes:
        fields = _pull(texts[number % len(texts)], offset=end)
        return frame(RequestCode.PULL_MESSAGE, fields)

    _held_and_woken(attack, request)


def slow_pops(attack: Attack) -> None:
    """Held pops of 100 groups with 256 tests of long properties each, woken likewise."""
    texts = [_slow(number) for number in range(8)]

    def request(number: int, end: int) -> bytes:
        fields = _pop(f"hostile-{number % 100}", texts[number % len(texts)])
        return frame(RequestCode.POP_MESSAGE, fields | {"pollTime": "100000"})

    _held_and_woken(attack, request)


def _held_and_woken(attack: Attack, request: Callable[[int, int], bytes]) -> None:
    """50 connections hold 2,000 of what `request` makes of a number and the queue's end; messages
    come, and then more of them."""
    crowd = attack.crowd(attack.target.broker, 50)
    while attack.going and crowd:
        end = _send(attack)
        for number in range(_HELD):
            if attack.going:
                attack.push(crowd[number % len(crowd)], request(number, end))


def _slow(number: int) -> str:
    """An expression that no message matches, with as many tests as may be."""
    return " OR ".join(f"a CONTAINS '{number}y{test}'" for test in range(_MOST_TESTS))


def _send(attack: Attack) -> int:
    """32 messages with a long property, in one batch; returns the end of their queue."""
    batch = encode_batch([b"x"] * 32, _PROPERTY)
    with Connection(attack.target.broker) as connection:
        answer = connection.request(send_request(_TOPIC, 0, batch, batch=True))
    return int(answer.ext_fields.get("queueOffset", 0)) + 32


def _pull(text: str, *, offset: int) -> dict[str, str]:
    fields = pull(_TOPIC, offset=offset, suspend=_FOR_EVER, expression=text)
    return fields | {"expressionType": "SQL92"}


def _pop(group: str, text: str) -> dict[str, str]:
    return {
        "consumerGroup": group,
        "topic": _TOPIC,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "1000",
        "pollTime": "0",
        "bornTime": str(int(time.time() * 1000)),
        "initMode": "0",
        "exp": text,
        "expType": "SQL92",
        "order": "false",
    }
