"""What a group costs that has nothing to do: real processes with stock's time-outs."""

import time
from pathlib import Path

import psutil

from rocketmq_tw.raft.bodies import AppendRequest, AppendResponse, DLedgerRequestCode
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.dledger import GROUP, DLedgerGroup, Member, Timing
from tests.support.remoting import ask
from tests.support.wait import wait_until

#: DLedger's defaults.
TIMING = Timing(heartbeat=2000, min_vote=300, max_vote=1000)
SHARE = 0.01
WINDOWS = 30


def test_an_idle_member_takes_less_than_a_hundredth_of_a_core(tmp_path: Path) -> None:
    """CPU time, so a busy machine does not matter; the best of some windows of two heartbeats."""
    group = DLedgerGroup(tmp_path, ("ours", "ours", "ours"), TIMING)
    try:
        group.start()
        # What has to be told again and again is told only where there is something.
        wait_until(lambda: append(group.wait_leader()), "an append to be acknowledged")
        best = dict.fromkeys(group.members, 1.0)
        for _ in range(WINDOWS):
            began, before = time.monotonic(), spent(group)
            time.sleep(2 * TIMING.heartbeat / 1000)
            window = time.monotonic() - began
            for name, seconds in spent(group).items():
                best[name] = min(best[name], (seconds - before[name]) / window)
            if max(best.values()) < SHARE:
                break
        assert max(best.values()) < SHARE, best
    finally:
        group.close()


def append(leader: Member) -> bool:
    request = AppendRequest(group=GROUP, remote_id=leader.name, body=b"an entry")
    command = RemotingCommand.request(DLedgerRequestCode.APPEND, body=msgspec.json.encode(request))
    answer = ask(leader.address, command)
    return msgspec.json.decode(answer.body, type=AppendResponse).code == 200


def spent(group: DLedgerGroup) -> dict[str, float]:
    """Seconds of CPU that each member has taken."""
    times = {name: psutil.Process(one.pid).cpu_times() for name, one in group.members.items()}
    return {name: one.user + one.system for name, one in times.items()}
