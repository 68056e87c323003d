"""The errors with which a client's call can fail, beside those of the connection (`net.errors`)."""

from rocketmq_tw.wire.command import RemotingCommand


class ClientError(Exception):
    """Base of the errors of this room."""


class NoRouteError(ClientError):
    """No name server, or no broker that a name server knows, can serve the call."""


class UnknownTopicError(NoRouteError):
    """The name servers answer and know no such topic."""

    @classmethod
    def nobody_takes(cls, topic: str) -> "UnknownTopicError":
        """Says that there is no broker to send a message of the topic to."""
        return cls(
            f"no registered broker has the topic {topic} or makes topics by itself: start one, or"
            f" create the topic {topic}"
        )


class BrokerError(ClientError):
    """A server answered with an error: its `code` and `remark`, and the `address` that said so."""

    def __init__(self, address: str, code: int, remark: str | None) -> None:
        super().__init__(address, code, remark)
        self.address = address
        self.code = code
        self.remark = remark or ""

    def __str__(self) -> str:
        return f"{self.address} answered {self.code}: {self.remark or 'without a remark'}"


def check_success(address: str, response: RemotingCommand) -> RemotingCommand:
    """Returns `response`, where its code is success; raises `BrokerError` otherwise."""
    if response.code != 0:
        raise BrokerError(address, response.code, response.remark)
    return response
