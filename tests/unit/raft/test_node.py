"""Nodes around the core: JSON in and out, the key-value example, bad input, a disk that fails."""

import base64
from collections.abc import Iterator
from errno import ENOSPC
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import (
    LogEvent,
    LogLevel,
    capturedLogs,
    formatEvent,
    globalLogPublisher,
)
from twisted.python.failure import Failure

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.raft.bodies import DLedgerRequestCode
from rocketmq_tw.raft.core.codes import Code, Refused, VoteResult
from rocketmq_tw.raft.requests import DLedgerRequests
from tests.support.raft_kv import Delete, Put, encode_kv_command


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def outcome(deferred: "Deferred[Any]") -> list[Any]:
    """What the Deferred fires with, as soon as it does."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    return found


def test_append_get_and_metadata_as_stocks_client_asks(group: Any) -> None:
    leader = group.elect()
    said = group.ask(leader, DLedgerRequestCode.METADATA, {"group": "g", "remoteId": leader})
    assert said["leaderId"] == leader and set(said["peers"]) == {"n0", "n1", "n2"}
    for number in range(3):
        body = encode_kv_command(Put("k", str(number)))
        answer = group.ask(
            leader, DLedgerRequestCode.APPEND, {"group": "g", "remoteId": leader, "body": b64(body)}
        )
        assert (answer["code"], answer["index"], answer["leaderId"]) == (200, number, leader)
    answer = group.ask(
        leader, DLedgerRequestCode.GET, {"group": "g", "remoteId": leader, "beginIndex": 1}
    )
    (entry,) = answer["entries"]
    assert entry["index"] == 1 and base64.b64decode(entry["body"]) == encode_kv_command(
        Put("k", "1")
    )
    group.run(0.5)
    assert {machine.values["k"] for machine in group.machines.values()} == {"2"}


def test_the_largest_entry_that_a_file_holds(group: Any) -> None:
    leader = group.elect()
    for _ in range(2):
        answer = group.ask(
            leader,
            DLedgerRequestCode.APPEND,
            {"group": "g", "remoteId": leader, "body": b64(bytes(4096 - 48 - 8))},
        )
        assert answer["code"] == 200
    group.run(1)
    group.stop(leader)
    group.start(leader)
    assert group.nodes[leader].core.log.end_index >= 1


def test_a_batch_becomes_entries_of_their_own(group: Any) -> None:
    leader = group.elect()
    bodies = [b64(encode_kv_command(Put(f"k{number}", "v"))) for number in range(5)]
    answer = group.ask(
        leader, DLedgerRequestCode.APPEND, {"group": "g", "remoteId": leader, "batchMsgs": bodies}
    )
    assert answer["code"] == 200 and answer["index"] == 4
    assert len(group.machines[leader].values) == 5


def test_the_key_value_example(group: Any) -> None:
    node = group.nodes[group.elect()]
    machine = group.machines[node.core.config.self_id]
    commands = [
        Put("a", "1"),
        Put("a", "2", expected="1"),
        Put("a", "3", expected="1"),
        Delete("b"),
        Put("b", "x"),
        Delete("b"),
    ]
    results = [outcome(one) for one in node.propose(map(encode_kv_command, commands))]
    group.run_until(lambda: all(results))
    assert [one[0].result for one in results] == [True, True, False, False, True, True]
    read = outcome(node.read())
    group.run_until(lambda: read)
    assert machine.values == {"a": "2"}


def test_a_member_that_was_away_gets_a_snapshot(snapshotting_group: Any) -> None:
    group = snapshotting_group
    node = group.nodes[group.elect()]
    away = next(member for member in group.nodes if member != node.core.config.self_id)
    group.stop(away)
    for number in range(60):
        done = outcome(node.propose([encode_kv_command(Put(f"k{number}", "v" * 60))])[0])
        group.run_until(lambda done=done: done)
    assert node.core.log.begin_index > 0
    group.start(away)
    group.run_until(lambda: group.nodes[away].core.applied_index >= 59)
    assert group.machines[away].values == group.machines[node.core.config.self_id].values
    assert group.nodes[away].core.log.begin_index > 0
    # And it finds its snapshot again.
    group.stop(away)
    group.start(away)
    group.run_until(lambda: group.nodes[away].core.applied_index >= 59)
    assert len(group.machines[away].values) == 60


def test_a_member_that_lost_its_store_gets_the_log_though_nothing_is_appended(group: Any) -> None:
    node = group.nodes[group.elect()]
    for number in range(30):
        node.propose([encode_kv_command(Put(f"k{number}", "v" * 60))])
    group.run(1)
    away = next(member for member in group.nodes if group.nodes[member] is not node)
    group.stop(away)
    group.disks[away] = FaultyFiles(MemoryFiles())
    group.start(away)
    group.run(10)
    assert group.leader() is node
    assert group.nodes[away].core.log.end_index == group.nodes[away].core.commit_index == 29
    assert len(group.machines[away].values) == 30


def test_a_member_that_starts_again_applies_the_last_entry_though_none_follows(group: Any) -> None:
    node = group.nodes[group.elect()]
    group.run(5)
    node.propose([encode_kv_command(Put("k", "v"))])
    group.run(0.01)
    away = next(member for member in group.nodes if group.nodes[member] is not node)
    at_power_loss = group.disks[away].inner.crash()
    group.stop(away)
    group.disks[away] = FaultyFiles(at_power_loss)
    group.start(away)
    assert group.nodes[away].core.commit_index == -1 < group.nodes[away].core.log.end_index
    group.run(5)
    assert group.leader() is node
    assert group.machines[away].values == {"k": "v"}


def test_leadership_is_handed_over_on_request(group: Any) -> None:
    leader = group.elect()
    target = next(member for member in group.nodes if member != leader)
    answer = group.ask(
        leader,
        DLedgerRequestCode.LEADERSHIP_TRANSFER,
        {
            "group": "g",
            "remoteId": leader,
            "transferId": leader,
            "transfereeId": target,
            "term": group.nodes[leader].core.term,
        },
    )
    assert answer["code"] == 200
    assert group.elect() == target


ENTRY = {"magic": 1, "size": 50, "index": 0, "term": 1, "pos": 0, "body": b64(b"hi")}


def base(**fields: Any) -> dict[str, Any]:
    return {"group": "g", "remoteId": "TARGET", "leaderId": "LEADER", "term": "TERM"} | fields


def push_of(**fields: Any) -> dict[str, Any]:
    return base(entry=ENTRY | fields)


def snap(next_pos: int, term: int) -> dict[str, Any]:
    return base(lastIncludedIndex=9, lastIncludedTerm=term, nextPos=next_pos, data="aGk=")


R = DLedgerRequestCode
BAD = [
    # what is wrong, to whom, code, body, answer
    ("unknown group", "leader", R.APPEND, base(group="other", body="aGk="), 400),
    ("unknown member", "leader", R.APPEND, base(remoteId="n7", body="aGk="), 401),
    ("append to a follower", "follower", R.APPEND, base(body="aGk="), 404),
    ("append of nothing", "leader", R.APPEND, base(), 420),
    ("append of no base64", "leader", R.APPEND, base(body="%%%"), 411),
    ("append of what fits no file", "leader", R.APPEND, base(body=b64(bytes(4041))), 411),
    ("push: what fits no file", "follower", R.PUSH, push_of(body=b64(bytes(4041))), 406),
    ("get from a follower", "follower", R.GET, base(beginIndex=0), 404),
    ("get what is not there", "leader", R.GET, base(beginIndex=99), 410),
    ("get a negative index", "leader", R.GET, base(beginIndex=-1), 410),
    ("get nothing", "leader", R.GET, base(), 411),
    ("pull", "leader", R.PULL, base(nodeId="n0", beginIndex=0), 303),
    ("no JSON", "leader", R.APPEND, b"{group:", 411),
    ("no UTF-8", "follower", R.VOTE, b'{"group":"\xff"}', 411),
    ("an array", "follower", R.HEART_BEAT, b"[]", 411),
    ("a text for a number", "follower", R.PUSH, base(term="five"), 411),
    ("empty body", "follower", R.PUSH, b"", 411),
    ("vote: unknown group", "follower", R.VOTE, base(group="other"), 400),
    ("vote: unknown member", "follower", R.VOTE, base(remoteId="n7"), 401),
    ("heartbeat: unknown leader", "follower", R.HEART_BEAT, base(leaderId="n7"), 401),
    ("heartbeat: of itself", "follower", R.HEART_BEAT, base(leaderId="TARGET"), 402),
    ("heartbeat: stale term", "follower", R.HEART_BEAT, base(term=0), 403),
    ("push: stale term", "follower", R.PUSH, base(term=0, entry=ENTRY), 403),
    ("push: unknown leader", "follower", R.PUSH, base(leaderId="n7", entry=ENTRY), 401),
    ("push: no such kind", "follower", R.PUSH, base(type="BURN", entry=ENTRY), 411),
    ("push: no entry", "follower", R.PUSH, base(type="APPEND"), 411),
    ("push: to the leader", "leader", R.PUSH, base(leaderId="OTHER", entry=ENTRY), 405),
    ("push: wrong CRC", "follower", R.PUSH, base(entry={**ENTRY, "bodyCrc": 7}), 406),
    ("push: wrong magic", "follower", R.PUSH, base(entry={**ENTRY, "magic": 2}), 411),
    ("push: wrong chain", "follower", R.PUSH, base(entry={**ENTRY, "chainCrc": 7}), 406),
    ("push: wrong place", "follower", R.PUSH, base(entry={**ENTRY, "pos": 13}), 406),
    ("push: a gap", "follower", R.PUSH, base(entry={**ENTRY, "index": 9}), 406),
    ("push: negative index", "follower", R.PUSH, base(entry={**ENTRY, "index": -3}), 411),
    ("vote: a term beyond 64 bits", "follower", R.VOTE, base(term=1 << 63), 411),
    ("vote: a term far beyond", "follower", R.VOTE, base(leaderId="OTHER", term=1 << 90), 411),
    ("heartbeat: a term beyond 64 bits", "follower", R.HEART_BEAT, base(term=1 << 63), 411),
    ("push: a channel beyond 32 bits", "follower", R.PUSH, push_of(channel=1 << 31), 411),
    ("push: a chain CRC beyond 32 bits", "follower", R.PUSH, push_of(chainCrc=1 << 40), 411),
    ("push: a body CRC beyond 32 bits", "follower", R.PUSH, push_of(bodyCrc=-(1 << 31) - 1), 411),
    ("push: an index beyond 64 bits", "follower", R.PUSH, push_of(index=1 << 64), 411),
    ("push: a position beyond 64 bits", "follower", R.PUSH, push_of(pos=1 << 64), 411),
    ("push: a commit index beyond", "follower", R.PUSH, base(commitIndex=1 << 64), 411),
    ("snapshot: a position before the files", "follower", R.INSTALL_SNAPSHOT, snap(-7, 1), 411),
    ("snapshot: beyond all files", "follower", R.INSTALL_SNAPSHOT, snap(1 << 62 | 1, 1), 411),
    ("snapshot: a term after the leader's", "follower", R.INSTALL_SNAPSHOT, snap(0, 99), 411),
    (
        "snapshot: out of order",
        "follower",
        R.INSTALL_SNAPSHOT,
        base(lastIncludedIndex=9, offset=5, data="aGk="),
        406,
    ),
    (
        "transfer: stale term",
        "leader",
        R.LEADERSHIP_TRANSFER,
        base(transferId="TARGET", transfereeId="OTHER", term=0),
        407,
    ),
    (
        "transfer: to nobody",
        "leader",
        R.LEADERSHIP_TRANSFER,
        base(transferId="TARGET", transfereeId="n7"),
        401,
    ),
    (
        "transfer: neither of us",
        "leader",
        R.LEADERSHIP_TRANSFER,
        base(transferId="OTHER", transfereeId="OTHER"),
        411,
    ),
    (
        "transfer: from who does not lead",
        "follower",
        R.LEADERSHIP_TRANSFER,
        base(transferId="OTHER", transfereeId="TARGET"),
        409,
    ),
]


V = VoteResult
BAD_VOTES = [
    ("vote: a stranger", R.VOTE, base(leaderId="n7"), V.REJECT_UNKNOWN_LEADER),
    ("vote: itself", R.VOTE, base(leaderId="TARGET"), V.REJECT_UNEXPECTED_LEADER),
    (
        "vote: a stale term",
        R.VOTE,
        base(leaderId="OTHER", term=0, ledgerEndTerm=9, ledgerEndIndex=9),
        V.REJECT_EXPIRED_VOTE_TERM,
    ),
    (
        "vote: a shorter log",
        R.VOTE,
        base(leaderId="OTHER", term=0, ledgerEndIndex=-5, ledgerEndTerm=-1),
        V.REJECT_SMALL_LEDGER_END_INDEX,
    ),
]
ALL_BAD = [
    *BAD,
    *((what, "follower", code, body, result) for what, code, body, result in BAD_VOTES),
]


def state_of(group: Any, member: str) -> tuple[Any, ...]:
    """What a member knows, and every byte that it has stored."""
    core, files = group.nodes[member].core, group.disks[member]
    paths = ["/s/currterm", "/s/checkpoint"]
    for directory in ("/s/data", "/s/index", "/s/snapshot"):
        if files.exists(directory):
            paths += [f"{directory}/{name}" for name in files.list(directory)]
    stored = {path: files.read(path) for path in paths if files.exists(path)}
    known = (core.role, core.term, core.vote_for, core.leader_id, core.commit_index)
    return (*known, core.log.begin_index, core.log.end_index, stored)


@pytest.fixture
def refusals() -> Iterator[list[LogEvent]]:
    """The warnings that are logged about requests meanwhile."""
    seen: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if event.get("log_namespace") == DLedgerRequests.log.namespace:
            seen.append(event)

    globalLogPublisher.addObserver(observe)
    yield seen
    globalLogPublisher.removeObserver(observe)


@pytest.mark.parametrize(
    ("what", "to", "code", "body", "expected"), ALL_BAD, ids=[bad[0] for bad in ALL_BAD]
)
def test_bad_input_is_answered_with_its_code_logged_and_changes_nothing(
    group: Any,
    refusals: list[LogEvent],
    what: str,
    to: str,
    code: DLedgerRequestCode,
    body: Any,
    expected: int | VoteResult,
) -> None:
    leader = group.elect()
    group.run(0.3)
    followers = [member for member in group.nodes if member != leader]
    target = leader if to == "leader" else followers[0]
    if isinstance(body, dict):
        term = group.nodes[target].core.term
        names = {"TARGET": target, "LEADER": leader, "OTHER": followers[1], "TERM": term}
        body = {key: names.get(v, v) if isinstance(v, str) else v for key, v in body.items()}
    before = state_of(group, target)
    refusals.clear()
    answer = group.ask(target, code, body)
    if isinstance(expected, VoteResult):
        said = expected.name
        assert (answer["code"], answer["voteResult"]) == (Code.SUCCESS, said)
    else:
        said = Code(expected).name
        assert answer["code"] == expected
    assert [(one["member"], one["request"], one["code"]) for one in refusals] == [
        (target, code.name, said)
    ]
    assert refusals[0]["log_level"] is LogLevel.warn and refusals[0]["reason"]
    assert state_of(group, target) == before
    assert group.leader() is group.nodes[leader]


def test_an_append_without_a_quorum_is_told_so_in_time(group: Any) -> None:
    leader = group.elect()
    for member in [member for member in group.nodes if member != leader]:
        group.stop(member)
    answer = group.ask(
        leader, DLedgerRequestCode.APPEND, {"group": "g", "remoteId": leader, "body": b64(b"{}")}
    )
    assert answer["code"] == Code.WAIT_QUORUM_ACK_TIMEOUT


def test_reads_and_proposals_end_when_the_leader_steps_down(group: Any) -> None:
    leader = group.elect()
    node = group.nodes[leader]
    for member in [member for member in group.nodes if member != leader]:
        group.stop(member)
    read = outcome(node.read())
    group.run_until(lambda: not node.is_leader)
    group.run_until(lambda: read)
    assert isinstance(read[0], Failure)
    assert read[0].check(Refused) and read[0].value.code is Code.TERM_CHANGED
    with pytest.raises(Refused) as refused:
        node.read()
    assert refused.value.code is Code.NOT_LEADER


def test_a_member_whose_disk_fails_answers_no_more(group: Any) -> None:
    leader = group.elect()
    node = group.nodes[leader]
    failed: list[Failure] = []
    node.when_failed.addErrback(failed.append)
    group.disks[leader].faults.append(Fault("fsync"))
    done = outcome(node.propose([encode_kv_command(Put("a", "1"))])[0])
    group.run_until(lambda: done)
    assert done[0].check(Refused) and done[0].value.code is Code.DISK_ERROR
    assert failed[0].check(OSError)
    with pytest.raises(Refused):
        node.propose([b"{}"])
    group.nodes.pop(leader)
    assert group.elect() != leader


@pytest.mark.parametrize("without_room", [1, 2, 3])
def test_a_group_goes_on_with_the_members_that_have_room(group: Any, without_room: int) -> None:
    former = group.elect()
    done = outcome(group.nodes[former].propose([encode_kv_command(Put("a", "kept"))])[0])
    group.run_until(lambda: done)
    full = [former, *(member for member in group.nodes if member != former)][:without_room]
    for member in full:
        group.disks[member].faults.append(Fault("pwrite", "/data/", error=ENOSPC))
    lost = outcome(group.nodes[former].propose([encode_kv_command(Put("a", "perhaps"))])[0])
    group.run_until(lambda: lost)
    assert lost[0].check(Refused)
    if without_room == 1:
        # Before the patience of the followers is over they have another leader.
        assert group.run_until(lambda: any(node.is_leader for node in group.nodes.values())) < 10
        (leader,) = [node for node in group.nodes.values() if node.is_leader]
        done = outcome(leader.propose([encode_kv_command(Put("b", "later"))])[0])
        group.run_until(lambda: done)
        assert done[0].index > 1
    else:
        group.run(20)
    for member in full:
        group.disks[member].faults.clear()
    group.run_until(lambda: group.leader() and not any(n.trouble for n in group.nodes.values()))
    done = outcome(group.leader().propose([encode_kv_command(Put("c", "last"))])[0])
    group.run_until(lambda: done)
    group.run(3)
    values = [machine.values for machine in group.machines.values()]
    assert values[0]["a"] in ("kept", "perhaps") and values[0]["c"] == "last"
    assert values == [values[0]] * 3 and ("b" in values[0]) == (without_room == 1)


def test_what_is_no_command_changes_nothing(group: Any) -> None:
    leader = group.elect()
    for body in (b"", b"no JSON", b"\xff", b'{"type":"put"}', b'{"type":"burn"}'):
        answer = group.ask(
            leader, DLedgerRequestCode.APPEND, {"group": "g", "remoteId": leader, "body": b64(body)}
        )
        assert answer["code"] == 200
    group.run(1)
    assert all(node.core.applied_index == 4 for node in group.nodes.values())
    assert not any(machine.values for machine in group.machines.values())


def test_a_member_whose_state_machine_fails_stops(group: Any) -> None:
    leader = group.elect()
    group.run(0.3)
    other = next(member for member in group.nodes if member != leader)
    failed: list[Failure] = []
    group.nodes[other].when_failed.addErrback(failed.append)

    def fail(entry: Any) -> None:
        raise ArithmeticError("a bug of the state machine")

    group.machines[other].apply = fail
    done = outcome(group.nodes[leader].propose([encode_kv_command(Put("a", "1"))])[0])
    group.run_until(lambda: done and failed)
    assert done[0].result is True
    assert failed[0].check(ArithmeticError)
    with pytest.raises(Refused):
        group.nodes[other].answer(lambda token: None)


def test_a_leaders_death_is_followed_by_a_new_one_within_the_time_outs(group: Any) -> None:
    """The follower's patience, the wait for who still has a leader, and a few votes."""
    config = group.nodes["n0"].config.raft
    patience = config.heartbeat_interval_ms * config.max_heartbeat_leak
    limit = (2 * patience + config.vote_round_ms + 4 * config.max_vote_interval_ms) / 1000
    for _ in range(4):
        leader = group.elect()
        group.run(3)
        group.stop(leader)
        took = group.run_until(group.leader)
        assert patience / 1000 - 2.0 < took < limit
        group.start(leader)


def test_the_last_entry_gets_into_every_checkpoint_though_none_follows(group: Any) -> None:
    """It is stored just before a checkpoint and committed just after it."""
    node = group.nodes[group.elect()]
    group.run(5)
    node.propose([encode_kv_command(Put("k", "v"))])
    group.run(1)
    (due,) = {one._checkpoints.due for one in group.nodes.values() if one is not node}
    group.run(due - group.clock.seconds() - 0.005)
    node.propose([encode_kv_command(Put("k", "v"))])
    group.run(10)
    for disk in group.disks.values():
        assert b"committedIndex=1\n" in disk.read("/s/checkpoint")
    assert all(one._checkpoints.due is None for one in group.nodes.values())


def test_an_idle_group_hardly_wakes(group: Any) -> None:
    leader = group.elect()
    group.nodes[leader].propose([encode_kv_command(Put("k", "v"))])
    group.run(10)
    ticks = dict.fromkeys(group.nodes, 0)
    for member, node in group.nodes.items():
        tick = node.core.tick

        def counted(now: int, member: str = member, tick: Any = tick) -> None:
            ticks[member] += 1
            tick(now)

        node.core.tick = counted
    group.run(60)
    assert group.leader() is group.nodes[leader]
    # A heartbeat every two seconds with a look at what came of it, and the followers' patience.
    assert ticks.pop(leader) <= 65
    assert max(ticks.values()) <= 35


def test_the_log_tells_once_that_there_is_no_leader(group: Any) -> None:
    def told(events: list[LogEvent]) -> list[str]:
        return [formatEvent(event) for event in events if event["log_level"] >= LogLevel.info]

    with capturedLogs() as events:
        leader = group.elect()
        group.run(20)
    assert not [line for line in told(events) if "no leader" in line or "CANDIDATE" in line]
    for member in [member for member in group.nodes if member != leader]:
        group.stop(member)
    with capturedLogs() as events:
        group.run(40)
    (warning,) = [line for line in told(events) if "no leader" in line]
    assert warning.startswith(f"g/{leader}: no leader for 10 s: more than half of n0-")
    assert not [line for line in told(events) if "CANDIDATE" in line]
