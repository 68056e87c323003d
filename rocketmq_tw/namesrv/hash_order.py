"""The order in which Java's hash tables give their keys.

Stock writes a route's brokers and queues in the order of its tables. Clients sort the queues, but
take the brokers as they come, so two name servers that answer in different orders would spread
clients differently; hence the same order here.
"""

from collections.abc import Iterable

from rocketmq_tw.message.tags import java_hash_code

#: A table of Java starts with so many places and doubles when it is three quarters full.
SMALLEST = 16


def in_hash_map_order(names: Iterable[str], places: int = SMALLEST) -> list[str]:
    """`names` as a `java.util.HashMap` gives them that they were put into one after the other.

    `places` is the table's initial size, a power of two.
    """
    names = list(names)
    while len(names) * 4 > places * 3:
        places *= 2

    def place(name: str) -> int:
        code = java_hash_code(name) & 0xFFFFFFFF
        return (code ^ code >> 16) & (places - 1)

    return sorted(names, key=place)


def in_hash_set_order(names: Iterable[str]) -> list[str]:
    """`names` as a `java.util.HashSet` gives them that was made of all at once: it has room to
    spare."""
    names = list(names)
    places = SMALLEST
    while places < len(names) * 4 // 3 + 1:
        places *= 2
    return in_hash_map_order(names, places)
