"""A group whose members speak TLS to one another: real processes."""

from pathlib import Path

from tests.support.dledger import DLedgerGroup, OurMember
from tests.support.wait import wait_until


def test_members_find_their_leader_over_tls(tmp_path: Path) -> None:
    enforcing = tmp_path / "tls.properties"
    enforcing.write_text("tls.server.mode=enforcing\n")
    group = DLedgerGroup(tmp_path, ("ours", "ours"))
    asked, strict = group.members["n0"], group.members["n1"]
    assert isinstance(asked, OurMember) and isinstance(strict, OurMember)
    # The one takes both, so that the test may ask it; the other takes and speaks TLS alone.
    asked.more = ("--tls",)
    strict.more = ("--tls-config", str(enforcing))
    try:
        strict.launch()
        asked.launch()
        asked.wait_ready()
        wait_until(lambda: asked.metadata().leader_id, "a leader, for which both are needed")
    finally:
        group.close()
