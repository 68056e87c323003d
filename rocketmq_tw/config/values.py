"""Values as .properties files write them: text to bool, int or str and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any

#: Java's long; keys of stock's type int are refused beyond its own range.
LONG = (-(2**63), 2**63 - 1)
INT = (-(2**31), 2**31 - 1)

#: Stock's delay levels, which are its delays between retries too.
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

#: No more digits than Python reads; a long has 19.
_integer = re.compile(r"[+-]?[0-9]{1,1000}").fullmatch
_address = re.compile(r"(?:[^\s:;\[\]]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})").fullmatch

#: Java and Python look up labels of at most 63 characters.
_host_name = re.compile(r"[\w-]{1,63}(?:\.[\w-]{1,63})*\.?").fullmatch
_plain_name = re.compile(r"[^\s/\\\x00-\x1f\x7f]+").fullmatch
_delay = re.compile(r"([0-9]+)([smhd])", re.ASCII).fullmatch
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Parse = Callable[[str], Any]


def parse_bool(text: str) -> bool:
    """Returns `true` or `false`; Java takes every other text for false, which hides typing
    errors."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("give true or false")


def integer(lowest: int, highest: int) -> Parse:
    """Reads an integer from `lowest` to `highest`."""

    def parse(text: str) -> int:
        if not _integer(text.strip()):
            raise ValueError(f"give an integer from {lowest} to {highest}")
        number = int(text)
        if not lowest <= number <= highest:
            raise ValueError(f"give an integer from {lowest} to {highest}")
        return number

    return parse


def choice(*names: str) -> Parse:
    """Reads one of `names`."""

    def parse(text: str) -> str:
        if text.strip() not in names:
            raise ValueError(f"give one of {', '.join(names)}")
        return text.strip()

    return parse


def addresses(text: str) -> str:
    """Reads `host:port`, several of them with `;` between; nothing is accepted too."""
    for part in filter(None, (part.strip() for part in text.split(";"))):
        found = _address(part)
        if found is None or not 0 < int(found[1]) < 65536:
            raise ValueError("give host:port, several with ';' between them")
    return text.strip()


def address(text: str) -> str:
    """Reads one `host:port`."""
    found = _address(text.strip())
    if found is None or not 0 < int(found[1]) < 65536:
        raise ValueError("give host:port")
    return text.strip()


def split_named_ports(text: str) -> dict[str, int]:
    """Returns the port of each name in `name:port;name:port`; raises `ValueError`."""
    ports: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, port = part.rpartition(":")
        if not _plain_name(name) or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError("give name:port, several with ';' between them")
        if name in ports or int(port) in ports.values():
            raise ValueError(f"{part}: give each name a port of its own")
        ports[name] = int(port)
    return ports


def named_ports(text: str) -> str:
    """Reads `name:port`, several of them with `;` between; nothing is accepted too."""
    split_named_ports(text)
    return text.strip()


def networks(text: str) -> str:
    """Reads IP networks, several with `;` between them; nothing is accepted too."""
    for part in filter(None, (part.strip() for part in text.split(";"))):
        try:
            ip_network(part)
        except ValueError as error:
            raise ValueError(
                f"{error}: give networks such as 10.1.0.0/16 or fd00::/8, or single addresses,"
                " several with ';' between them"
            ) from error
    return text.strip()


def plain_name(text: str) -> str:
    """Reads the name of a broker or of a cluster, as tables, tools and messages show it."""
    name = text.strip()
    if not _plain_name(name):
        raise ValueError("give a name without blanks and slashes")
    return name


def host(text: str) -> str:
    """Reads a host's name or IP address; whether there is one is not asked."""
    host = text.strip()
    if not _host_name(host):
        try:
            ip_address(host)
        except ValueError:
            raise ValueError("give a host name or an IP address, without a port") from None
    return host


def path(text: str) -> str:
    """Reads a path, which may be relative."""
    if not text.strip():
        raise ValueError("give a path")
    return text


def or_nothing(parse: Parse) -> Parse:
    """Reads what `parse` does, or an empty text as it is."""
    return lambda text: parse(text) if text.strip() else ""


def hours_of_day(text: str) -> str:
    """Reads hours from 0 to 23 with `;` between them."""
    # Java leaves out what is empty behind the last separator.
    for hour in text.rstrip("; ").split(";"):
        if not _integer(hour.strip()) or not 0 <= int(hour) <= 23:
            raise ValueError("give hours from 0 to 23, several with ';' between them")
    return text.strip()


def delay_levels(text: str) -> str:
    """Reads durations such as `1s 5m 2h 1d`, one for each level."""
    delay_levels_ms(text)
    return text.strip()


def delay_levels_ms(text: str) -> tuple[int, ...]:
    """Returns the milliseconds of each delay level, of level 1 first; raises `ValueError`."""
    found = [_delay(word) for word in text.split()]
    levels = tuple(int(each[1]) * _UNITS[each[2]] for each in found if each is not None)
    if not levels or len(levels) < len(found):
        raise ValueError("give durations with s, m, h or d, blanks between them, as in 1s 5m 2h")
    return levels


def any_text(text: str) -> str:
    """Reads any text as it is."""
    return text


def format_value(value: Any) -> str:
    """Returns a value as a .properties file has it."""
    if value is True or value is False:
        return "true" if value else "false"
    return str(value)
