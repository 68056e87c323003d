"""Whatever comes in, a handler answers or refuses; nothing else."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

FIELDS = (
    *("clusterName", "brokerName", "brokerAddr", "brokerId", "haServerAddr", "compressed"),
    *("bodyCrc32", "enableActingMaster", "heartbeatTimeoutMillis", "topic", "cluster"),
    *("namespace", "key", "value", "acceptStandardJsonOnly", "__ZONE_MODE", "__ZONE_NAME"),
)
CODES = (100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313)
values = st.one_of(
    st.text(max_size=8),
    st.integers().map(str),
    st.sampled_from(["true", "false", "127.0.0.1:10911", "0", "broker-a", "C", "T1"]),
)
bodies = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"",
            b"{}",
            b'{"queueDatas":[{"brokerName":"broker-a"}]}',
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{},"b":{}}}}',
            b'{"topicConfigSerializeWrapper":null,"filterServerList":null}',
            b'{"dataVersion":{"counter":99999999999999999999}}',
        ]
    ),
)


@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    code=st.sampled_from((*CODES, 318, 319, 322, 327, 901, 904)),
    fields=st.dictionaries(st.sampled_from(FIELDS), values),
    body=bodies,
)
def test_any_fields_and_any_body(
    namesrv: Any, code: int, fields: dict[str, str], body: bytes
) -> None:
    try:
        answer = namesrv.ask(code, fields, body)
    except RequestError as refused:
        assert refused.remark
    else:
        assert isinstance(answer, RemotingCommand)
        assert namesrv.ask(106, {}).code == 0
