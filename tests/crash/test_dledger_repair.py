"""docs/raft.md, "A store that is refused", followed with real members."""

import shutil
from pathlib import Path

import pytest

from rocketmq_tw.raft.bodies import AppendRequest, AppendResponse, DLedgerRequestCode
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.dledger import GROUP, DLedgerGroup, Member, Timing
from tests.support.remoting import ask
from tests.support.wait import wait_until

ENTRIES = 200


def append(group: DLedgerGroup, bodies: list[bytes]) -> int:
    """The index of the last one; asked again while the leader changes."""

    def appended() -> int | None:
        leader = group.wait_leader()
        request = AppendRequest(group=GROUP, remote_id=leader.name, batch_msgs=bodies)
        command = RemotingCommand.request(
            DLedgerRequestCode.APPEND, body=msgspec.json.encode(request)
        )
        response = ask(leader.address, command)
        answer = msgspec.json.decode(response.body, type=AppendResponse)
        return answer.index if answer.code == 200 else None

    last = wait_until(appended, "an append to be acknowledged")
    assert last is not None
    return last


def committed(member: Member) -> int:
    path = member.store / f"dledger-{member.name}" / "checkpoint"
    if not path.exists():
        return -1
    return int(dict(line.split("=") for line in path.read_text().splitlines())["committedIndex"])


@pytest.mark.parametrize("damaged", ["follower", "leader"])
def test_a_removed_store_is_copied_from_the_leader(tmp_path: Path, damaged: str) -> None:
    group = DLedgerGroup(tmp_path, ("ours", "ours", "ours"), Timing(200, 50, 150))
    bodies = [f"entry-{number}".encode() for number in range(ENTRIES)]
    try:
        group.start()
        last = append(group, bodies)
        members = list(group.members.values())
        wait_until(lambda: min(map(committed, members)) >= last, "three checkpoints")
        leader = group.wait_leader()
        away = leader if damaged == "leader" else next(one for one in members if one is not leader)
        away.kill()
        others = [one for one in members if one is not away]
        group.wait_leader()
        shutil.rmtree(away.store / f"dledger-{away.name}")
        away.start()
        wait_until(lambda: committed(away) >= last, "the log to be copied")
        # It counts again: with it and one other the group goes on.
        others[0].kill()
        more = append(group, [b"after"])
        for member in (away, others[1]):
            member.stop()
        copied, kept = (one.entries()[: more + 1] for one in (away, others[1]))
        assert copied == kept and copied[more].body == b"after"
        assert [entry.body for entry in kept[last + 1 - ENTRIES : last + 1]] == bodies
    finally:
        group.close()
