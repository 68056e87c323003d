"""The header of a load balancer."""

from __future__ import annotations

import pytest

from rocketmq_tw.net.haproxy import NO_HEADER, Forwarded, ForwardingHeader, read_forwarding

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
IPV4 = bytes([10, 1, 2, 3]) + bytes([10, 0, 0, 9]) + b"\xc0\x00" + b"\x1f\x91"
IPV6 = bytes(15) + b"\x01" + bytes(15) + b"\x02" + b"\xc0\x00" + b"\x1f\x91"
V4_ENDS = Forwarded("10.1.2.3:49152", "10.0.0.9:8081")


def binary(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + bytes([command, family]) + len(rest).to_bytes(2) + rest


@pytest.mark.parametrize(
    ("header", "forwarded"),
    [
        (b"PROXY TCP4 10.1.2.3 10.0.0.9 49152 8081\r\n", V4_ENDS),
        (b"PROXY TCP6 ::1 ::2 49152 8081\r\n", Forwarded("[::1]:49152", "[::2]:8081")),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ::1 1 2\r\n", None),
        (binary(0x21, 0x11, IPV4), V4_ENDS),
        (binary(0x21, 0x11, IPV4 + b"\x03\x00\x04abcd"), V4_ENDS),
        (binary(0x21, 0x21, IPV6), Forwarded("[::1]:49152", "[::2]:8081")),
        (binary(0x20, 0x11, IPV4), None),
        (binary(0x20, 0x00, b""), None),
        (binary(0x21, 0x31, bytes(216)), None),
    ],
)
def test_headers_of_both_versions(header: bytes, forwarded: Forwarded | None) -> None:
    assert read_forwarding(header + b"PRI * ") == ForwardingHeader(len(header), forwarded)
    for cut in range(len(header)):
        assert read_forwarding(header[:cut]) is None, cut


@pytest.mark.parametrize("data", [b"PRI * HTTP/2.0", b"\x16\x03", b"\x00\x00\x01", b"\r\nx"])
def test_what_is_no_header(data: bytes) -> None:
    assert read_forwarding(data) is NO_HEADER


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 10.1.2.3 10.0.0.9 49152\r\n",
        b"PROXY TCP4 host 10.0.0.9 49152 8081\r\n",
        b"PROXY TCP4 10.1.2.3 10.0.0.9 -1 8081\r\n",
        b"PROXY UDP4 10.1.2.3 10.0.0.9 1 2\r\n",
        b"PROXY " + b"x" * 200,
        binary(0x21, 0x11, IPV4[:-1]),
        binary(0x2F, 0x11, IPV4),
        binary(0x21, 0x11, bytes(5000)),
    ],
)
def test_a_wrong_header_is_refused(header: bytes) -> None:
    with pytest.raises(ValueError, match="PROXY"):
        read_forwarding(header)
