"""Tells clients of the proxy what became of a request: a code and a sentence.

A response has its status inside; the call itself succeeds, as stock's proxies answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.logger import Logger

from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.net.errors import RemotingError, RequestTimeout
from rocketmq_tw.proxy.proto.messages import Code, Status
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

log = Logger()

_OK = Code.OK

#: Codes of brokers that say more than that something is wrong. Stock's proxies have the first five;
#: all others are INTERNAL_SERVER_ERROR there, whosever the fault is.
_CODES: dict[int, Code] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.ILLEGAL_OPERATION: Code.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.QUERY_NOT_FOUND: Code.NOT_FOUND,
    ResponseCode.NO_MESSAGE: Code.MESSAGE_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.PULL_OFFSET_MOVED: Code.ILLEGAL_OFFSET,
    ResponseCode.VERSION_NOT_SUPPORTED: Code.VERSION_UNSUPPORTED,
}

#: How brokers, stock's and ours, begin the remark of SYSTEM_ERROR where their enablePropertyFilter
#: is off.
_FILTERS_BY_TAGS_ONLY = (
    "The broker does not support consumer to filter message by",
    "the broker does not filter by",
)


class StatusError(Exception):
    """Ends a request with a status; the message is for the client, and says what to change."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def status(code: Code, message: str = "") -> Status:
    """Returns a status; without a message it has the code's name."""
    return Status(code=code, message=message or Code.Name(code))


def ok() -> Status:
    """Returns the status of what succeeded."""
    return Status(code=_OK, message="OK")


def broker_code(code: int, remark: str | None) -> Code:
    """Returns what the response code of a broker, with its remark, is to a client."""
    if code == ResponseCode.SYSTEM_ERROR and (remark or "").startswith(_FILTERS_BY_TAGS_ONLY):
        return Code.ILLEGAL_FILTER_EXPRESSION
    return _CODES.get(code, Code.INTERNAL_SERVER_ERROR)


def broker_status(code: int, remark: str | None) -> Status:
    """Returns the status for a broker's response code and remark."""
    return status(
        broker_code(code, remark), remark or (f"the broker answered {code}" if code else "")
    )


def status_of(error: BaseException) -> Status:
    """Returns the status for what a request failed with; what is nobody's known error is logged."""
    if isinstance(error, StatusError):
        # Clients show the number only; stock's answers have the name as well.
        return status(error.code, f"{Code.Name(error.code)}: {error.message}")
    if isinstance(error, RequestError | BrokerError):
        return broker_status(error.code, error.remark)
    if isinstance(error, RequestTimeout):
        return status(Code.PROXY_TIMEOUT, str(error))
    if isinstance(error, RemotingError):
        return status(Code.INTERNAL_SERVER_ERROR, f"the broker cannot be reached: {error}")
    log.error("a client's request failed: {error!r}", error=error)
    return status(Code.INTERNAL_SERVER_ERROR, "the proxy failed; its log says more")


def overall(entries: Iterable[Status]) -> Status:
    """Returns the status of a response whose entries have one each: theirs where all have the same
    code, MULTIPLE_RESULTS otherwise."""
    first: Status | None = None
    for entry in entries:
        if first is None:
            first = entry
        elif entry.code != first.code:
            return status(Code.MULTIPLE_RESULTS)
    return status(Code.MULTIPLE_RESULTS) if first is None else first
