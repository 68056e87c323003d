"""One store, opened by stock and by ours in turn: stock reads what we wrote, and we what it did."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.dledger import (
    Appended,
    Member,
    OurMember,
    StockDLedgerClient,
    StockMember,
    Timing,
)
from tests.support.wait import wait_until

pytestmark = pytest.mark.interop

TIMING = Timing(100, 50, 150)
#: Enough for several data files of the tests' size.
ENTRIES = 40
SIZE = 60_000


def append(client: StockDLedgerClient, text: str) -> int:
    """The entry's index; asked again where the client gave up on an answer."""

    def acknowledged() -> Appended | None:
        answer = client.append(text)
        return answer if answer.code == 200 else None

    answer = wait_until(acknowledged, "an append to be acknowledged")
    assert answer is not None
    return answer.index


def serve(kind: type[Member], home: Path, fill: bool, known: dict[int, str]) -> None:
    """A group of one: checks every known entry, then appends more."""
    member = kind("n0", home, TIMING)
    member.peers = f"n0-{member.address}"
    client = StockDLedgerClient(member.peers, home / "client")
    try:
        member.start()
        wait_until(lambda: member.metadata().leader_id == "n0", "the only member to lead")
        for index, text in known.items():
            found = wait_until(partial(client.get, index), f"entry {index}")
            assert found == text, (kind.__name__, index)
        for number in range(ENTRIES if fill else 0):
            text = f"{kind.__name__}-{number}-" + "x" * SIZE
            index = append(client, text)
            assert index not in known and index >= len(known)
            known[index] = text
        member.stop()
    finally:
        client.close()
        member.close()


def test_stock_and_ours_take_turns_on_one_store(tmp_path: Path) -> None:
    known: dict[int, str] = {}
    serve(OurMember, tmp_path, True, known)
    serve(StockMember, tmp_path, True, known)
    serve(OurMember, tmp_path, True, known)
    serve(StockMember, tmp_path, False, known)
    assert len(known) == 3 * ENTRIES
    assert len(list((tmp_path / "store" / "dledger-n0" / "data").iterdir())) > 3
