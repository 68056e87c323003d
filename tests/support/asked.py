"""What tests of a broker's requests ask, and how they look at answers."""

import errno

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.files.faulty import Fault
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.support.broker import BrokerInMemory

#: No table can be written.
FULL_DISK = [
    Fault("pwrite", f"/store/config/{table}", errno.ENOSPC)
    for table in ("topics", "subscriptionGroup")
]


def refused(code: ResponseCode):
    """A context that wants a refusal with this code."""
    return pytest.raises(RequestError, match=f"^{int(code)} ")


def failure_of(kept: Deferred[RemotingCommand]) -> RequestError:
    failures: list[Failure] = []
    kept.addErrback(failures.append)
    error = failures[0].value
    assert isinstance(error, RequestError)
    return error


def query_offset(broker: BrokerInMemory, **fields: object) -> int:
    header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, **fields)  # type: ignore[arg-type]
    response = broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
    offset: int = response.header(QueryConsumerOffsetResponseHeader).offset
    return offset


def commit_offset(broker: BrokerInMemory, offset: int, **fields: object) -> RemotingCommand:
    values: dict[str, object] = {"consumer_group": "G", "topic": "T", "queue_id": 0}
    header = UpdateConsumerOffsetRequestHeader(commit_offset=offset, **(values | fields))  # type: ignore[arg-type]
    response: RemotingCommand = broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    return response
