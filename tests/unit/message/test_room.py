"""Room among a message's properties."""

from collections.abc import Mapping

import pytest

from rocketmq_tw.message import room
from rocketmq_tw.message.properties import MAX_PROPERTIES_LENGTH, join_properties
from rocketmq_tw.message.room import (
    MOST_STORED,
    ROOM,
    fits,
    without_brokers_own,
    without_longest,
)

BROKERS = {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion", "CLUSTER": "DefaultCluster"}


def sized(properties: dict[str, str], size: int) -> dict[str, str]:
    """With one more property, so that all have `size` bytes."""
    rest = size - len(join_properties(properties)) - len("z\x01\x02")
    return properties | {"z": "x" * rest}


def test_what_fits_stays_as_it_is() -> None:
    properties = sized(BROKERS, MOST_STORED)
    assert fits(properties)
    assert without_brokers_own(properties) == properties
    assert without_longest(properties) == (properties, [])


def test_no_more_is_left_out_than_it_takes() -> None:
    shorter = without_brokers_own(sized(BROKERS, MOST_STORED + 20))
    assert fits(shorter) and BROKERS.keys() - shorter.keys() == {"TRACE_ON", "MSG_REGION"}


def test_the_longest_go_and_the_origin_stays() -> None:
    origin = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "0" * 32, "UNIQ_KEY": "u" * 200}
    users = {"a": "x" * 100, "\u00fc": "\u00e4" * 60}
    shorter, gone = without_longest(sized(origin | users, MOST_STORED + 1))
    assert (shorter, gone) == (origin | users, ["z"])


def test_many_that_do_not_fit_are_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = 0

    def counting(properties: Mapping[str, str]) -> bytes:
        nonlocal joined
        joined += len(properties)
        return join_properties(properties)

    monkeypatch.setattr(room, "join_properties", counting)
    # Of characters that have three bytes each.
    properties = {chr(0x4E00 + n % 100) + chr(0x4E00 + n // 100): "x" for n in range(8_000)}
    shorter, gone = without_longest(properties)
    assert joined <= 3 * len(properties)
    assert fits(shorter) and not fits(properties)
    assert len(join_properties(shorter)) > MOST_STORED - 10
    assert shorter.keys() | set(gone) == properties.keys()


def test_all_that_brokers_add_finds_room() -> None:
    topic, group, number = "T" * 127, "G" * 255, "9" * 19
    added = {
        "RETRY_TOPIC": topic,
        "ORIGIN_MESSAGE_ID": "0" * 56,
        "WAIT": "false",
        "DELAY": "18",
        "REAL_TOPIC": f"%RETRY%{group}",
        "REAL_QID": "65535",
        "1ST_POP_TIME": "1" * 13,
        "TIMER_OUT_MS": "1" * 13,
        "TIMER_ENQUEUE_MS": "1" * 13,
        "TIMER_DEQUEUE_MS": "1" * 13,
        "TIMER_ROLL_TIMES": "9999",
        "TRANSACTION_CHECK_TIMES": "9999",
        "TRAN_PREPARED_QUEUE_OFFSET": number,
        "__CRC32#": "1" * 10,
    }
    assert len(join_properties(added)) <= ROOM < MAX_PROPERTIES_LENGTH
