"""`host:port`, the text that stands for an address everywhere in the protocol."""

import socket
from collections.abc import Sequence
from typing import Any

LOOPBACK = "127.0.0.1"


def format_address(address: Any) -> str:
    """Returns a Twisted address as `host:port`; an IPv6 host in brackets."""
    host = getattr(address, "host", None)
    if host is None:
        return str(address)
    return join_address(host, address.port)


def join_address(host: str, port: int) -> str:
    """Returns `host:port`, `[host]:port` where the host has colons itself."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of `host:port` or `[host]:port`; raises `ValueError` that shows the
    text."""
    host, colon, port = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is no address: give host:port, such as 127.0.0.1:9876")
    return host, int(port)


def split_addresses(text: str | Sequence[str]) -> list[str]:
    """Returns the addresses of `host:port;host:port`, or of a list, without blanks and empty
    ones."""
    parts = text.split(";") if isinstance(text, str) else text
    return [part.strip() for part in parts if part.strip()]


def name_server_addresses(text: str | Sequence[str]) -> list[str]:
    """Returns the addresses of name servers, split as `split_addresses` does.

    Raises `ValueError` for none, and for what is no address: to try it again and again would hide
    the mistake.
    """
    addresses = split_addresses(text)
    if not addresses:
        raise ValueError("no name server is given: name one as host:port, more separated by ;")
    for address in addresses:
        split_address(address)
    return addresses


def look_up_host(host: str) -> list[str]:
    """Returns the IP addresses behind the name of a host, in the order of the system's resolver.

    Blocks, for many seconds where a name server is silent. Raises `OSError` where the name is not
    known, and `UnicodeError` where it is no name.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def host_address() -> str:
    """Returns the address of the interface that the default route leaves by; loopback without one.

    Connecting a datagram socket sends nothing: it only asks the kernel for the route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])
