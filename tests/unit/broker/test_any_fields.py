"""Whatever a client sends, a handler answers or refuses; nothing breaks, and others are served."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer

#: The fields that requests of the broker have, long and short.
FIELDS = (
    *("topic", "consumerGroup", "producerGroup", "group", "clientId", "clientID", "groupName"),
    *("queueId", "offset", "queueOffset", "commitOffset", "maxMsgNums", "maxMsgBytes", "sysFlag"),
    *("suspendTimeoutMillis", "subscription", "subVersion", "expressionType", "timestamp"),
    *("defaultTopic", "defaultTopicQueueNums", "bornTimestamp", "flag", "properties", "batch"),
    *("reconsumeTimes", "unitMode", "maxReconsumeTimes", "delayLevel", "originMsgId", "msgId"),
    *("originTopic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "order"),
    *("topicSysFlag", "attributes", "key", "maxNum", "beginTimestamp", "endTimestamp", "isForce"),
    *("srcGroup", "destGroup", "setZeroIfNotFound", "boundaryType", "cleanOffset", "index"),
    *("count", "isC", "jstackEnable", *"abcdefghijklmn"),
)
TEXTS = {
    **dict.fromkeys(("topic", "originTopic", "b"), "Topic"),
    **dict.fromkeys(("consumerGroup", "producerGroup", "group", "groupName", "a"), "G"),
    **dict.fromkeys(("clientId", "clientID", "msgId", "originMsgId"), "c"),
    **dict.fromkeys(("defaultTopic", "c"), "TBW102"),
    **dict.fromkeys(("srcGroup", "destGroup", "key"), "G"),
    **dict.fromkeys(("subscription", "i", "properties", "attributes"), ""),
    **dict.fromkeys(("expressionType", "topicFilterType", "boundaryType"), ""),
    **dict.fromkeys(("batch", "m", "unitMode", "k", "order", "isForce", "cleanOffset"), "false"),
}
#: With these a request of each code gets far.
GOOD = {name: TEXTS.get(name, "1") for name in FIELDS}
NUMBERS = ("-1", "0", "1", "3", "32", str(2**31 - 1), str(-(2**31)), str(2**63 - 1), str(-(2**63)))
NAMES = ("Topic", "G", "TBW102", "%RETRY%G", "SCHEDULE_TOPIC_XXXX", "../x", "", "n" * 300, "*")
PROPERTIES = ("", "DELAY\x01-7\x02", "DELAY\x0199999999999999999999\x02", "a\x01", "\x02\x01\x02")
values = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(NAMES),
    st.sampled_from(PROPERTIES),
    st.sampled_from(("true", "false", "TAG", "SQL92")),
    st.text(max_size=8),
)
bodies = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        (
            b"",
            b"{}",
            b'{"clientID":"c","consumerDataSet":[{"groupName":"G"}]}',
            b'{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"Topic","queueId":-1}]}',
            b'{"topicConfigList":[{"topicName":"T2","readQueueNums":-5}]}',
            b'{"groupName":"G","retryQueueNums":2147483647,"retryMaxTimes":-9}',
            b"brokerPermission=6\n",
        )
    ),
)
one_request = st.tuples(
    st.sampled_from(sorted(BrokerInMemory().handlers)),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=5),
    st.sets(st.sampled_from(FIELDS), max_size=3),
    bodies,
)


@settings(max_examples=300, deadline=None)
@given(requests=st.lists(one_request, min_size=1, max_size=10))
def test_any_fields_and_any_body(
    requests: list[tuple[int, dict[str, str], set[str], bytes]],
) -> None:
    broker = BrokerInMemory()
    broker.topics.create_on_send("Topic", "TBW102", "somebody", 4, 0)
    for code, changed, missing, body in requests:
        fields = {name: value for name, value in (GOOD | changed).items() if name not in missing}
        request = RemotingCommand(code, ext_fields=fields, body=body)
        failures: list[Any] = []
        try:
            answer = broker.handlers[code](request, FakePeer())
        except (RequestError, WireError) as refused:
            assert str(refused)
        else:
            if isinstance(answer, Deferred):
                answer.addErrback(failures.append)
            else:
                assert answer is None or isinstance(answer, RemotingCommand)
        broker.clock.advance(0)
        sent = broker.send()
        assert sent is not None
        assert sent.code in (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)
        assert all(failure.check(RequestError, WireError) for failure in failures)
