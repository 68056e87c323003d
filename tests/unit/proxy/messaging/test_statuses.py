import pytest

from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.net.errors import ConnectError, ConnectionLost, RequestTimeout
from rocketmq_tw.proxy.messaging.statuses import (
    StatusError,
    broker_status,
    ok,
    overall,
    status,
    status_of,
)
from rocketmq_tw.proxy.proto.messages import Code
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (ResponseCode.SUCCESS, Code.OK),
        (ResponseCode.SYSTEM_ERROR, Code.INTERNAL_SERVER_ERROR),
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, Code.NOT_IMPLEMENTED),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, Code.CONSUMER_GROUP_NOT_FOUND),
        (ResponseCode.TOPIC_NOT_EXIST, Code.TOPIC_NOT_FOUND),
        (ResponseCode.MESSAGE_ILLEGAL, Code.BAD_REQUEST),
        (ResponseCode.NO_PERMISSION, Code.FORBIDDEN),
        (ResponseCode.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
        (9999, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_codes_of_brokers_are_codes_for_clients(code: int, shown: int) -> None:
    assert broker_status(code, "why").code == shown
    assert broker_status(code, "why").message == "why"


def test_stock_s_brokers_that_filter_by_tags_only() -> None:
    said = "The broker does not support consumer to filter message by SQL92"
    assert broker_status(ResponseCode.SYSTEM_ERROR, said).code == Code.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (StatusError(Code.ILLEGAL_TOPIC, "no"), Code.ILLEGAL_TOPIC, "no"),
        (RequestError(ResponseCode.SYSTEM_BUSY, "no"), Code.TOO_MANY_REQUESTS, "no"),
        (BrokerError("b:1", ResponseCode.NO_PERMISSION, "no"), Code.FORBIDDEN, "no"),
        (RequestTimeout("b:1", 310, 3), Code.PROXY_TIMEOUT, "within 3 s"),
        (ConnectError("b:1", "refused"), Code.INTERNAL_SERVER_ERROR, "b:1: refused"),
        (ConnectionLost("b:1", "gone"), Code.INTERNAL_SERVER_ERROR, "b:1: gone"),
        (ZeroDivisionError("secret"), Code.INTERNAL_SERVER_ERROR, "the proxy failed"),
    ],
)
def test_errors_are_statuses(error: Exception, code: int, message: str) -> None:
    found = status_of(error)
    assert found.code == code
    assert message in found.message
    assert "secret" not in found.message


def test_entries_make_the_overall_status() -> None:
    wrong = status(Code.HA_NOT_AVAILABLE, "no slave")
    assert overall([ok(), ok()]) == status(Code.OK)
    assert overall([wrong, wrong]) == wrong
    assert overall([ok(), wrong]).code == Code.MULTIPLE_RESULTS
    assert ok().message == "OK"
