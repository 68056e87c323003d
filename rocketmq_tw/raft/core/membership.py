"""The members of a group: ids and addresses, how many are a majority, which terms they can have.

DLedger 0.3.1.2 fixes the members at start: `n0-host:port;n1-host:port`. Stock's format:
docs/formats/dledger.md.
"""

from collections.abc import Iterable


class MembershipError(ValueError):
    """A list of peers that names no group; the text says what to write instead."""


def parse_peers(text: str) -> dict[str, str]:
    """Ids and addresses, in the order of `text`. Raises `MembershipError`."""
    peers: dict[str, str] = {}
    for part in text.split(";"):
        peer_id, dash, address = part.strip().partition("-")
        host, colon, port = address.rpartition(":")
        is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
        if not (peer_id and dash and host and colon and is_port):
            raise MembershipError(f"{part!r} is no peer: write id-host:port, peers split by ';'")
        if not is_member_id(peer_id):
            raise MembershipError(f"{peer_id!r} is no member id: use letters, digits, '_' and '.'")
        if peer_id in peers:
            raise MembershipError(f"the id {peer_id!r} stands twice in {text!r}")
        peers[peer_id] = address
    return peers


def is_member_id(text: str) -> bool:
    """Ids become part of a path, so only plain ones pass."""
    plain = text.replace("_", "").replace(".", "")
    return 0 < len(text) <= 64 and plain.isascii() and plain.isalnum()


def quorum_size(members: int) -> int:
    """Returns the smallest majority of `members`."""
    return members // 2 + 1


def is_quorum(count: int, members: int) -> bool:
    return count >= quorum_size(members)


def quorum_index(indexes: Iterable[int]) -> int:
    """Returns the highest index that a majority holds, of one index a member."""
    ordered = sorted(indexes, reverse=True)
    return ordered[len(ordered) // 2]


#: A member raises its term once in an election, and the shortest wait between two of them is 300 ms
#: by default: a group that elects without end needs forty years for so many. Stock believes any
#: term, so that one request with the largest one ends all elections of a group for ever.
MAX_TERM_STEP = 1 << 32


def is_reachable(term: int, own_term: int) -> bool:
    """Returns whether a member that was left behind in `own_term` can meet a peer in `term`."""
    return term <= own_term + MAX_TERM_STEP
