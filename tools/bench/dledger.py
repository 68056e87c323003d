"""A DLedger group of three brokers: a send is answered once two of them have it."""

from __future__ import annotations

from pathlib import Path

from tests.support.dledger_group import group_keys
from tests.support.ports import ReservedPort
from tools.bench.subjects import (
    NAME,
    SETTINGS,
    START_LIMIT,
    Subject,
    make_broker,
    make_name_server,
    until,
)

_MEMBERS = 3


class GroupSubject(Subject):
    """As `Subject` with two members more of its kind; the first one leads."""

    def __init__(self, kind: str, home: Path, settings: dict[str, str] | None = None) -> None:
        self.kind = kind
        self.start_seconds = 0.0
        self.name_server = make_name_server(kind, home / "namesrv")
        self._ports = [ReservedPort() for _ in range(_MEMBERS)]
        addresses = [port.address for port in self._ports]
        common = SETTINGS | {"preferredLeaderId": "n0"} | (settings or {})
        self._members = [
            make_broker(
                kind, home / f"n{n}", self.name_server, group_keys(NAME, addresses, n) | common
            )
            for n in range(_MEMBERS)
        ]
        self.broker = self._members[0]

    def start(self) -> None:
        for member in self._members[1:]:
            member.launch()
        super().start()
        until(self._leads, "all members to be registered, and the first to lead", START_LIMIT)

    def _leads(self) -> bool:
        addresses = self.name_server.addresses_of(NAME)
        return len(addresses) == _MEMBERS and addresses.get(0) == self.broker.address

    def close(self) -> None:
        for member in self._members[1:]:
            member.close()
        super().close()
        for port in self._ports:
            port.release()
