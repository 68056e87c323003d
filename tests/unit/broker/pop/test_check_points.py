"""Several messages that have to be stored before an answer leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail

from rocketmq_tw.broker.pop.check_points import _tag_of, all_stored, decode_revive_message
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.message.properties import TAGS, join_properties, parse_properties
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.wire.bodies.base import BodyError
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

STORED = PutResult(ResponseCode.SUCCESS, Appended(0, 0, 0, 0, ""))
BROKEN = PutResult(ResponseCode.SYSTEM_ERROR, Appended(0, 0, 0, 0, ""))


def outcome(stored: Deferred[None]) -> list[object]:
    """Gets what it fires with, or the error with which it fails."""
    found: list[object] = []
    stored.addCallbacks(found.append, lambda failure: found.append(failure.value))
    return found


def test_the_answer_waits_for_the_last_one() -> None:
    puts: list[Deferred[PutResult]] = [Deferred(), Deferred()]
    found = outcome(all_stored(puts))
    puts[1].callback(STORED)
    assert not found
    puts[0].callback(STORED)
    assert found == [None]
    assert outcome(all_stored([])) == [None]


def test_one_that_is_not_stored_fails_all_once_the_others_have_ended() -> None:
    puts: list[Deferred[PutResult]] = [Deferred(), Deferred()]
    found = outcome(all_stored(puts))
    puts[0].callback(BROKEN)
    assert not found
    puts[1].callback(STORED)
    (error,) = found
    assert isinstance(error, RequestError) and error.code == ResponseCode.SYSTEM_ERROR
    assert error.remark == "it could not be stored: SYSTEM_ERROR"


def test_none_is_made_behind_one_that_is_refused() -> None:
    first: Deferred[PutResult] = Deferred()
    refusal = RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no")
    made = []

    def puts() -> Iterator[Deferred[PutResult]]:
        for number, put in enumerate((first, fail(refusal), Deferred())):
            made.append(number)
            yield put

    found = outcome(all_stored(puts()))
    assert made == [0, 1] and not found
    first.callback(STORED)
    assert found == [refusal]


@given(
    st.lists(st.sampled_from([b"TAGS", b"\x01", b"\x02", b"ack", b"ck", b"KEYS", b"\xff"])).map(
        b"".join
    ),
    st.booleans(),
)
def test_the_tag_of_a_message_is_the_one_that_its_properties_have(rest: bytes, own: bool) -> None:
    properties = b"TAGS\x01ack\x02" + rest if own else rest
    assert _tag_of(properties) == parse_properties(properties).get(TAGS)


@pytest.mark.parametrize("tag", ["ck", "ack", "bAck"])
@pytest.mark.parametrize("body", [b"{'x':[0,0]}", b"{1:2}", b'""'])
def test_a_body_that_is_no_strict_json_is_damaged(tag: str, body: bytes) -> None:
    with pytest.raises(BodyError, match="the body is no"):
        decode_revive_message(join_properties({TAGS: tag}), body)


def test_an_acknowledgement_of_more_than_any_check_point_has_is_damaged() -> None:
    many = b'{"aol":[%b]}' % b",".join([b"1"] * 2000)
    with pytest.raises(BodyError):
        decode_revive_message(join_properties({TAGS: "bAck"}), many)
