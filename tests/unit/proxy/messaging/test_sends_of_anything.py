"""Whatever a client sends: it is stored, or refused with a code of its own mistakes."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.proxy.messaging.transaction_ids import TransactionId
from rocketmq_tw.proxy.proto.messages import (
    Code,
    Duration,
    EndTransactionRequest,
    Message,
    RecallMessageRequest,
    Resource,
    SystemProperties,
    Timestamp,
)
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.send import (
    RecallMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tests.support.proxy import PlayedBrokers
from tests.support.sending import SendingProxy

_INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
_TEXTS = st.one_of(
    st.sampled_from(["", " ", "T", "g", "TBW102", "%RETRY%G", "a|b", "\x01", "\x7f", "a\x02b"]),
    st.text(max_size=80),
)
_TIMES = st.builds(Timestamp, seconds=st.integers(-(1 << 63), (1 << 63) - 1), nanos=_INT32)
_DURATIONS = st.builds(Duration, seconds=st.integers(-(1 << 63), (1 << 63) - 1), nanos=_INT32)
_TOPICS = st.one_of(
    st.just(Resource(name="T")), st.builds(Resource, resource_namespace=_TEXTS, name=_TEXTS)
)
_SYSTEM = st.fixed_dictionaries(
    {"message_id": st.one_of(st.just("ID"), _TEXTS)},
    optional={
        "tag": _TEXTS,
        "keys": st.lists(_TEXTS, max_size=3),
        "body_encoding": _INT32,
        "message_type": st.one_of(st.integers(0, 7), _INT32),
        "born_timestamp": _TIMES,
        "born_host": _TEXTS,
        "delivery_timestamp": _TIMES,
        "delivery_attempt": _INT32,
        "message_group": _TEXTS,
        "trace_context": _TEXTS,
        "orphaned_transaction_recovery_duration": _DURATIONS,
    },
)
_MESSAGES = st.builds(
    lambda topic, properties, system, body: Message(
        topic=topic,
        user_properties=properties,
        system_properties=SystemProperties(**system),
        body=body,
    ),
    _TOPICS,
    st.dictionaries(_TEXTS, _TEXTS, max_size=3),
    _SYSTEM,
    st.binary(max_size=50),
)
#: Codes that tell a client that it is not to blame.
_NOT_ITS_FAULT = range(Code.INTERNAL_ERROR, Code.NOT_IMPLEMENTED)


def proxy_before_brokers() -> SendingProxy:
    """Before brokers that store, decide and recall what they are asked to."""
    brokers = PlayedBrokers()
    brokers.add_topic("T", {"a": 4, "b": 4}, message_type="MIXED")
    stored = SendMessageResponseHeader(msg_id="0" * 32, queue_id=0, queue_offset=0)
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        brokers.answer(code, lambda request: request.response(header=stored))
    brokers.answer(RequestCode.END_TRANSACTION, lambda request: request.response())
    recalled = RecallMessageResponseHeader(msg_id="ID")
    brokers.answer(RequestCode.RECALL_MESSAGE, lambda request: request.response(header=recalled))
    return SendingProxy(brokers, Clock())


@settings(max_examples=150, deadline=None)
@given(st.lists(_MESSAGES, max_size=3))
def test_messages(messages: list[Message]) -> None:
    proxy = proxy_before_brokers()
    response = proxy.send(*messages)
    assert response.status.code not in _NOT_ITS_FAULT, response
    assert response.status.message
    stored = response.status.code == Code.OK
    assert len(response.entries) == (len(messages) if stored else 0)
    assert len(proxy.brokers.asked) == stored
    if stored and len(messages) == 1:
        header = proxy.brokers.asked[0].request.header(SendMessageRequestHeaderV2)
        properties = parse_properties(header.properties)
        # Nothing that a client writes makes another property of it.
        assert properties["PGROUP"] == header.topic
        assert properties["UNIQ_KEY"] == messages[0].system_properties.message_id
        for name, value in messages[0].user_properties.items():
            assert properties.get(name, "") == value


@settings(max_examples=80, deadline=None)
@given(_TOPICS, _TEXTS, _TEXTS, _INT32, _INT32)
def test_decisions(topic: Resource, message_id: str, tx: str, resolution: int, source: int) -> None:
    proxy = proxy_before_brokers()
    proxy.halves.remember("T", TransactionId("T", "a", 7, 4096))
    request = EndTransactionRequest(
        topic=topic, message_id=message_id, transaction_id=tx, resolution=resolution, source=source
    )
    assert proxy.call("EndTransaction", request).status.code not in _NOT_ITS_FAULT


@settings(max_examples=80, deadline=None)
@given(_TOPICS, st.one_of(_TEXTS, st.binary(max_size=40).map(lambda data: data.hex())))
def test_recalls(topic: Resource, handle: str) -> None:
    request = RecallMessageRequest(topic=topic, recall_handle=handle)
    response = proxy_before_brokers().call("RecallMessage", request)
    assert response.status.code not in _NOT_ITS_FAULT
