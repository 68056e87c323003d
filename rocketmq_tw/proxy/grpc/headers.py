"""The headers of gRPC calls: requests that come, statuses that go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from hpack import NeverIndexedHeaderTuple

from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus
from rocketmq_tw.proxy.http2.interfaces import HeaderList, RequestHeaders

GRPC_CONTENT_TYPE = b"application/grpc"
#: What each response begins with.
RESPONSE_HEADERS: HeaderList = (
    (b":status", b"200"),
    (b"content-type", GRPC_CONTENT_TYPE),
    (b"grpc-accept-encoding", b"identity,gzip"),
)
OK_TRAILERS: HeaderList = ((b"grpc-status", b"0"),)
#: Bytes of a status message that are sent; clients take few headers.
LONGEST_MESSAGE = 2048

_LONGEST_TIMEOUT = 8
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_PLAIN = frozenset(range(0x20, 0x7F)) - {0x25}


def read_headers(headers: RequestHeaders) -> dict[str, str]:
    """Returns headers by name; those that come more than once are joined by commas."""
    result = dict(headers)
    if len(result) < len(headers):
        values: defaultdict[str, list[str]] = defaultdict(list)
        for name, value in headers:
            values[name].append(value)
        result = {name: ",".join(each) for name, each in values.items()}
    return result


def timeout_of(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that `grpc-timeout` gives; None where there is none.

    Raises `GrpcError` for what is no timeout.
    """
    text = headers.get("grpc-timeout")
    if text is None:
        return None
    digits, unit = text[:-1], _SECONDS.get(text[-1:])
    is_number = digits.isdecimal() and digits.isascii() and len(digits) <= _LONGEST_TIMEOUT
    if unit is None or not is_number:
        raise GrpcError(
            GrpcStatus.INVALID_ARGUMENT,
            f"grpc-timeout {text[:40]!r} is none: give up to 8 digits and one of H M S m u n",
        )
    return int(digits) * unit


def status_trailers(status: GrpcStatus, message: str) -> HeaderList:
    """Returns the trailers that end a call with a status other than OK."""
    # Not kept in the table of headers that later responses refer to: each is different.
    text = NeverIndexedHeaderTuple(b"grpc-message", percent_encode(message))
    return ((b"grpc-status", b"%d" % status), text)


def percent_encode(message: str) -> bytes:
    """Returns a status message in the ASCII that headers take."""
    data = message.encode("utf-8", "replace")
    if len(data) > LONGEST_MESSAGE:
        data = data[:LONGEST_MESSAGE].decode("utf-8", "ignore").encode()
    return b"".join([b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in data])
