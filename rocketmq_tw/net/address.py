"""`host:port`, the text that stands for an address everywhere in the protocol."""

from typing import Any


def format_address(address: Any) -> str:
    """A Twisted address as `host:port`; an IPv6 host in brackets."""
    host = getattr(address, "host", None)
    if host is None:
        return str(address)
    return join_address(host, address.port)


def join_address(host: str, port: int) -> str:
    """`host:port`, `[host]:port` where the host has colons itself."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[host]:port`; raises `ValueError` that shows the text."""
    host, colon, port = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is no address: give host:port, such as 127.0.0.1:9876")
    return host, int(port)
