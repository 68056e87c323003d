"""Names of topics and groups."""

import pytest

from rocketmq_tw.message import names
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


@pytest.mark.parametrize("name", ["t", "%RETRY%group-1_x|y", "A" * 127])
def test_legal_topics(name: str) -> None:
    names.check_topic(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "blank"),
        (" \t", "blank"),
        ("a b", "illegal"),
        ("../etc", "illegal"),
        ("a/b", "illegal"),
        ("a\x00", "illegal"),
        ("größe", "illegal"),
        ("t\n", "illegal"),
        ("A" * 128, "127"),
    ],
)
def test_illegal_topics(name: str, why: str) -> None:
    with pytest.raises(RequestError, match=why) as caught:
        names.check_topic(name, ResponseCode.INVALID_PARAMETER)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


def test_a_groups_retry_topic_names_a_directory() -> None:
    longest = "g" * names.MAX_GROUP_LENGTH
    names.check_group(longest)
    assert len(names.retry_topic(longest)) == 255
    with pytest.raises(RequestError, match="248"):
        names.check_group(longest + "g")
