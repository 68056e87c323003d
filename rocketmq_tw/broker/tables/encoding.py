"""Tables in their wire form, at the cost of what changed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rocketmq_tw.wire.bodies.base import encode_body

#: Entries that may be kept though they left the table, before all are made anew.
_SPARE = 1024


class EntryCache:
    """The entries of a table, each encoded once: `encode` puts together what it has.

    May be used in any thread, for a mapping that does not change meanwhile. An entry is known again
    by its identity, so a table replaces its entries and never changes them.
    """

    def __init__(self) -> None:
        self._encoded: dict[str, tuple[object, bytes]] = {}

    def encode(self, entries: Mapping[str, object], *, whole: bool = True) -> msgspec.Raw:
        """The mapping in stock's form, to stand in a body instead of it. Not `whole`: it is a part
        of the table."""
        encoded = self._encoded
        if whole and len(encoded) > 2 * len(entries) + _SPARE:
            encoded = self._encoded = {}
        parts = []
        for name, entry in entries.items():
            known = encoded.get(name)
            if known is None or known[0] is not entry:
                known = (entry, encode_body(name) + b":" + encode_body(entry))
                encoded[name] = known
            parts.append(known[1])
        return msgspec.Raw(b"{" + b",".join(parts) + b"}")
