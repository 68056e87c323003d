"""Who belongs to a group. DLedger 0.3.1.2 fixes it at start: `n0-host:port;n1-host:port`."""


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
