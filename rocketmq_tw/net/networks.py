"""IP networks that a configuration names, and whether an address is in one of them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from rocketmq_tw.memo import remembered

#: Characters of an address whose host is remembered: those of IP addresses are shorter.
_SHORT = 64


class Networks:
    """The networks of a text such as `10.1.0.0/16;fd00::/8`; false where it names none."""

    def __init__(self, text: str) -> None:
        """Raises `ValueError` for what is no network."""
        self._networks = [ip_network(part.strip()) for part in text.split(";") if part.strip()]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: object) -> bool:
        """Returns whether `address`, `host:port` or a host alone, is in one of the networks."""
        ip = ip_of(str(address))
        return ip is not None and any(ip in network for network in self._networks)


def host_of(address: str) -> str:
    """Returns the host of `host:port`, and a host alone as it is; an IP address in its shortest
    form, so that two of them can be compared."""
    return _remembered_host(address) if len(address) <= _SHORT else _find_host(address)


def is_same_host(one: str, other: str) -> bool:
    """Returns whether two addresses, `host:port` or hosts alone, are of one host."""
    return host_of(one) == host_of(other)


def _find_host(address: str) -> str:
    host = address
    if address.startswith("["):
        host = address[1:].partition("]")[0]
    elif address.count(":") == 1:
        host = address.partition(":")[0]
    ip = _parsed(host)
    return host if ip is None else str(ip)


_remembered_host = remembered(4096)(_find_host)


def ip_of(address: str) -> IPv4Address | IPv6Address | None:
    """Returns the IP address of `host:port` or a host; None where the host is a name."""
    return _parsed(host_of(address))


def is_loopback(address: str) -> bool:
    """Returns whether `host:port` is on this machine and reached by no other one."""
    ip = ip_of(address)
    return ip is not None and ip.is_loopback


def _parsed(host: str) -> IPv4Address | IPv6Address | None:
    try:
        ip = ip_address(host)
    except ValueError:
        return None
    # What a socket of both families says of an IPv4 peer.
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return ip if mapped is None else mapped
