"""What the log says of an administrator's changes: what was done, and nothing else."""

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.wire.errors import RequestError


def said(namesrv: Any, code: int, **fields: str) -> list[str]:
    with capturedLogs() as logs:
        assert namesrv.ask(code, fields).code == 0
    # In front of it is who did it, and where that was.
    return [formatEvent(event).split(" ", 3)[3] for event in logs]


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (205, {"brokerName": "nobody"}),
        (327, {"brokerName": "nobody"}),
        (216, {"topic": "nothing"}),
        (216, {"topic": "nothing", "clusterName": "C"}),
        (216, {"topic": "T1", "clusterName": "elsewhere"}),
    ],
)
def test_of_unknown_names_nothing_is_said_to_be_done(
    namesrv: Any, code: int, fields: dict[str, str]
) -> None:
    namesrv.register(topics=("T1", "T2"))
    assert said(namesrv, code, **fields) == []
    assert namesrv.addresses("T1")


def test_what_is_done_is_said(namesrv: Any) -> None:
    namesrv.register(topics=("T1", "T2\n"))
    name = "broker-a"
    took = "took the write permission of broker 'broker-a' in 2 topics"
    assert said(namesrv, 205, brokerName=name) == [f"{took}: perm 4 (was 6) in 2"]
    assert said(namesrv, 205, brokerName=name) == [f"{took}: nothing"]
    assert said(namesrv, 327, brokerName=name) == [
        "gave broker 'broker-a' its write permission in 2 topics: perm 6 (was 4) in 2"
    ]
    assert said(namesrv, 216, topic="T1", clusterName="C") == [
        "deleted topic 'T1' (was broker-a: 16 to read, 16 to write, perm 6)"
    ]
    assert said(namesrv, 216, topic="T2\n") == [
        r"deleted topic 'T2\n' (was broker-a: 16 to read, 16 to write, perm 6)"
    ]
    assert not namesrv.addresses("T1")


def test_values_are_said_with_what_they_were(namesrv: Any) -> None:
    of = {"namespace": "NS", "key": "K"}
    assert said(namesrv, 100, **of, value="1") == ["sets the value of K in NS: 1 (was not there)"]
    assert said(namesrv, 100, **of, value="2") == ["sets the value of K in NS: 2 (was 1)"]
    assert said(namesrv, 102, **of) == ["deletes the value of K in NS: not there (was 2)"]


def test_of_a_value_that_is_refused_nothing_is_said(namesrv: Any) -> None:
    with capturedLogs() as logs, pytest.raises(RequestError, match="the namespace is empty"):
        namesrv.ask(100, {"namespace": "", "key": "K", "value": "1"})
    assert logs == []


def test_a_name_server_measures_its_topics(namesrv: Any) -> None:
    namesrv.register("broker-a", topics=("T1", "T2"))
    namesrv.register("broker-b", port=10921, topics=("T1", "U1"))
    (topics,) = namesrv.server.metrics()
    assert topics.name == "rocketmq_topic_number" and topics.labels == {"node_type": "namesrv"}
    assert topics.value == 4, "each once for each of its brokers"
