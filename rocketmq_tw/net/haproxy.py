"""The header by which a load balancer tells whose connection it passes on: HAProxy's PROXY
protocol, versions 1 and 2."""

from __future__ import annotations

import socket
from struct import Struct
from typing import Any

import attrs

from rocketmq_tw.net.address import format_address, join_address
from rocketmq_tw.net.networks import ip_of

_V1 = b"PROXY "
#: Of version 1, with its end.
_LONGEST_LINE = 107
_V2 = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_REST = Struct(">BBH")
#: Bytes behind the first 16 of version 2 that we wait for; addresses take 36.
_LONGEST_REST = 4096
_LOCAL, _PROXY = 0x20, 0x21
#: Families of version 2 with TCP: address family and the bytes of one address.
_FAMILIES = {0x11: (socket.AF_INET, 4), 0x21: (socket.AF_INET6, 16)}


@attrs.frozen
class Forwarded:
    """The ends of a connection that a load balancer passes on."""

    #: `host:port` of the client.
    address: str
    #: `host:port` that it connected to.
    local_address: str


@attrs.frozen
class ForwardingHeader:
    """The header with which a load balancer begins a connection."""

    #: 0: there is no header.
    length: int
    #: None where the load balancer speaks for itself, or does not say for whom.
    forwarded: Forwarded | None = None


NO_HEADER = ForwardingHeader(0)


def read_forwarding(data: bytes) -> ForwardingHeader | None:
    """Returns the header that `data` begins with; None where more is needed to tell.

    Raises `ValueError` for one that is wrong.
    """
    if data.startswith(_V1):
        return _read_line(data)
    if data.startswith(_V2):
        return _read_binary(data)
    if _V1.startswith(data) or _V2.startswith(data):
        return None
    return NO_HEADER


def ends_of(transport: Any, forwarded: Forwarded | None) -> tuple[str, str]:
    """Returns `host:port` of a connection's other end and of this one."""
    if forwarded is not None:
        return forwarded.address, forwarded.local_address
    return format_address(transport.getPeer()), format_address(transport.getHost())


def _read_line(data: bytes) -> ForwardingHeader | None:
    end = data.find(b"\r\n", 0, _LONGEST_LINE)
    if end < 0:
        if len(data) >= _LONGEST_LINE:
            raise ValueError("the line of a PROXY header does not end")
        return None
    length = end + 2
    _, kind, *words = data[:end].decode("ascii", "replace").split(" ")
    if kind == "UNKNOWN":
        return ForwardingHeader(length)
    if kind not in ("TCP4", "TCP6") or len(words) != 4:
        raise ValueError("a PROXY header is PROXY TCP4|TCP6 source target port port")
    source, target, source_port, target_port = words
    return ForwardingHeader(
        length, Forwarded(_checked(source, source_port), _checked(target, target_port))
    )


def _checked(host: str, port: str) -> str:
    if ip_of(host) is None or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"a PROXY header has {host[:50]!r} and {port[:10]!r} for an address")
    return join_address(host, int(port))


def _read_binary(data: bytes) -> ForwardingHeader | None:
    start = len(_V2)
    if len(data) < start + _V2_REST.size:
        return None
    command, family, rest = _V2_REST.unpack_from(data, start)
    if rest > _LONGEST_REST:
        raise ValueError(f"a PROXY header of {rest} bytes; at most {_LONGEST_REST} are taken")
    start += _V2_REST.size
    length = start + rest
    if len(data) < length:
        return None
    if command == _LOCAL:
        return ForwardingHeader(length)
    if command != _PROXY:
        raise ValueError(f"a PROXY header with command {command:#x}")
    if family not in _FAMILIES:
        return ForwardingHeader(length)
    kind, size = _FAMILIES[family]
    if rest < 2 * size + 4:
        raise ValueError("a PROXY header is too short for its addresses")
    ports = start + 2 * size
    source, target = data[start : start + size], data[start + size : ports]
    return ForwardingHeader(
        length,
        Forwarded(
            join_address(socket.inet_ntop(kind, source), int.from_bytes(data[ports : ports + 2])),
            join_address(
                socket.inet_ntop(kind, target), int.from_bytes(data[ports + 2 : ports + 4])
            ),
        ),
    )
