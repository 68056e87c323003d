"""The messages by which a job tells a receiver service what it is done with: one JSON object in a
line, each way.

Request `{"secret": text, "confirm": [[topic, broker, queue, start, end], ...]}`, answer
`{"confirmed": count, "open": count}` or `{"error": text}`.
"""

import hmac
import socket
from collections.abc import Sequence

from rocketmq_tw.net.address import split_address
from rocketmq_tw.spark.errors import SparkSourceError
from rocketmq_tw.spark.ranges import OffsetRange
from rocketmq_tw.structs import msgspec

MAX_CONTROL_LINE = 4 * 1024 * 1024


class ControlError(SparkSourceError):
    """The service did not take a confirmation; its messages come again."""


class Confirmation(msgspec.Struct, forbid_unknown_fields=True):
    """Tells a receiver service which messages a job is done with: (topic, broker, queue id, start,
    end) of each range, and the service's secret."""

    confirm: list[tuple[str, str, int, int, int]] = []
    secret: str = ""

    def ranges(self) -> list[OffsetRange]:
        return [OffsetRange(*part) for part in self.confirm]


class Answer(msgspec.Struct, omit_defaults=True):
    confirmed: int = 0
    open: int = 0
    error: str | None = None


def encode_confirmation(ranges: Sequence[OffsetRange], secret: str) -> bytes:
    parts = [(r.topic, r.broker_name, r.queue_id, r.start, r.end) for r in ranges]
    return msgspec.json.encode(Confirmation(parts, secret)) + b"\n"


def decode_confirmation(line: bytes, secret: str) -> Confirmation:
    """Returns the request; raises `ControlError` for what is none, or has another secret."""
    try:
        request = msgspec.json.decode(line, type=Confirmation)
    except msgspec.MsgspecError as error:
        raise ControlError(f"not a confirmation: {error}") from error
    if not hmac.compare_digest(request.secret.encode(), secret.encode()):
        raise ControlError("the secret is not the service's: give both the same")
    return request


def confirm(
    address: str, ranges: Sequence[OffsetRange], *, secret: str = "", timeout: float = 10.0
) -> int:
    """Confirms `ranges` at a service; how many messages that freed. Raises `ControlError`."""
    try:
        with socket.create_connection(split_address(address), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(encode_confirmation(ranges, secret))
            with connection.makefile("rb") as file:
                line = file.readline(MAX_CONTROL_LINE)
        answer = msgspec.json.decode(line, type=Answer)
    except (OSError, msgspec.MsgspecError) as error:
        raise ControlError(f"the receiver service at {address}: {error}") from error
    if answer.error is not None:
        raise ControlError(f"the receiver service at {address}: {answer.error}")
    return answer.confirmed
