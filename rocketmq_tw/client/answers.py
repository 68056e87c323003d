"""Reads the bodies of answers, and says whose answer cannot be read."""

from typing import TypeVar

from rocketmq_tw.client.errors import check_success
from rocketmq_tw.wire.bodies.base import Body, decode_body
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import BodyError

B = TypeVar("B", bound=Body)


class AnswerError(BodyError):
    """The answer of a server that has another body than it should have."""

    def __str__(self) -> str:
        return self.remark


def read_answer(body_type: type[B], address: str, data: bytes) -> B:
    """Returns the body that the server at `address` has answered; raises `AnswerError`, which names
    that."""
    try:
        return decode_body(body_type, data)
    except BodyError as error:
        raise AnswerError(
            f"{address}: its answer cannot be read, {error.remark}: look which server, and of which"
            " version, listens there"
        ) from error


def read_success(body_type: type[B], address: str, response: RemotingCommand) -> B:
    """Returns the body of an answer that tells of success; raises `BrokerError` for another one,
    and as `read_answer` does."""
    return read_answer(body_type, address, check_success(address, response).body)
