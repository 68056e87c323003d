"""Scripts of what happens in a group, with the expected output inline.

A script is a run of blocks: a command, `----`, what it prints. Members are 1, 2, 3 ...; messages
wait until they are delivered, storing is done at once.

    start 3 [terms=1,1,2] [behind=3:1,1] [term=2]   a group; all have those entries, 3 has others
    campaign 1            member 1 raises its term and asks for votes
    tick 2000 [only=1]    time passes for all, or for one member alone
    deliver [2] [drop=3]  what waits for member 2 (or all) arrives, what waits for 3 is lost
    stabilize [drop=3]    delivers until nothing waits
    propose 1 text        an entry at member 1
    read 1                a linearizable read at member 1
    transfer 1 2          member 1 hands over to member 2
    crash 3, restart 3    all that was stored stays
    state                 one line a member
"""

from collections.abc import Callable
from random import Random

from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import ParseResult, RaftRole, Refused
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.raft_core import RaftCore, Ready
from tests.support.raft_store import MemoryStore, entries_of_terms

SEPARATOR = "----"
_MANY = 500


def run_script(text: str) -> str:
    """The script with the output that it really has."""
    group = ScriptedGroup()
    blocks = []
    for block in text.strip().split("\n\n"):
        head = block.split(f"\n{SEPARATOR}")[0].strip()
        command = [line for line in head.splitlines() if not line.startswith("#")]
        if not command:
            blocks.append(head)
            continue
        group.output.clear()
        for line in command:
            group.run(line)
        blocks.append("\n".join([head, SEPARATOR, *(group.output or ["ok"])]))
    return "\n\n".join(blocks) + "\n"


class ScriptedGroup:
    """The members, the messages between them, and the clock."""

    def __init__(self) -> None:
        self.output: list[str] = []
        self._cores: dict[str, RaftCore] = {}
        self._stores: dict[str, MemoryStore] = {}
        self._hard: dict[str, HardState] = {}
        self._queue: list[m.RaftMessage] = []
        self._members: tuple[str, ...] = ()
        self._now = 0

    def run(self, line: str) -> None:
        """One command."""
        words = line.split()
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        arguments = [word for word in words[1:] if "=" not in word]
        command: Callable[..., None] = getattr(self, f"_do_{words[0]}")
        command(*arguments, **options)

    def _do_start(
        self, count: str, terms: str = "", behind: str = "", term: str = "0", preferred: str = ""
    ) -> None:
        self._members = tuple(f"n{number}" for number in range(1, int(count) + 1))
        self._preferred = tuple(f"n{one}" for one in preferred.split(",") if one)
        own = dict(part.split(":") for part in behind.split(";") if part)
        for member in self._members:
            chosen = own.get(member[1:], terms)
            entries = entries_of_terms([int(one) for one in chosen.split(",") if one])
            self._stores[member] = MemoryStore(entries)
            self._hard[member] = HardState(int(term))
            self._do_restart(member[1:])

    def _do_restart(self, number: str) -> None:
        member = f"n{number}"
        config = RaftConfig(
            self_id=member, members=self._members, preferred_leader_ids=self._preferred
        )
        core = RaftCore(config, self._stores[member], self._hard[member], -1, Random(int(number)))
        core.election.next_vote_at = self._now + 10**9
        core._state.now = self._now
        self._cores[member] = core

    def _do_crash(self, number: str) -> None:
        del self._cores[f"n{number}"]
        self._queue = [one for one in self._queue if one.target != f"n{number}"]

    def _do_campaign(self, number: str) -> None:
        core = self._cores[f"n{number}"]
        if core.role is not RaftRole.CANDIDATE:
            core._state.become_candidate(core.term)
        core.election.last_parse_result = ParseResult.WAIT_TO_VOTE_NEXT
        core.election.next_vote_at = 0
        core.tick(self._now)
        self._work(f"n{number}")

    def _do_tick(self, milliseconds: str, only: str = "") -> None:
        end = self._now + int(milliseconds)
        members = [f"n{only}"] if only else list(self._cores)
        for _ in range(_MANY):
            due = {one: self._cores[one].next_deadline() for one in members}
            member = min(due, key=due.__getitem__)
            if due[member] > end:
                break
            self._now = max(self._now, due[member])
            self._cores[member].tick(self._now)
            self._work(member)
        self._now = end

    def _do_deliver(self, *numbers: str, drop: str = "") -> None:
        wanted = [f"n{number}" for number in numbers] or list(self._members)
        lost = [f"n{number}" for number in drop.split(",") if number]
        waiting, self._queue = self._queue, []
        for message in waiting:
            if message.target in lost:
                self.output.append(f"lost {_shown(message)}")
            elif message.target not in wanted or message.target not in self._cores:
                self._queue.append(message)
            else:
                self.output.append(_shown(message))
                self._cores[message.target].step(message, self._now)
                self._work(message.target)

    def _do_stabilize(self, drop: str = "") -> None:
        self._queue = [one for one in self._queue if one.target in self._cores]
        for _ in range(_MANY):
            if not self._queue:
                return
            self._do_deliver(drop=drop)
            self._queue = [one for one in self._queue if one.target in self._cores]
        self.output.append("...")

    def _do_propose(self, number: str, *texts: str) -> None:
        self._ask(number, lambda core: core.propose([text.encode() for text in texts]))

    def _do_read(self, number: str) -> None:
        self._ask(number, lambda core: core.request_read(1))

    def _do_transfer(self, source: str, target: str) -> None:
        self._ask(source, lambda core: core.request_transfer(f"n{target}", self._now))

    def _ask(self, number: str, question: Callable[[RaftCore], object]) -> None:
        try:
            question(self._cores[f"n{number}"])
        except Refused as refused:
            self.output.append(f"n{number} refuses: {refused}")
        self._work(f"n{number}")

    def _do_state(self) -> None:
        for member in self._members:
            core = self._cores.get(member)
            if core is None:
                self.output.append(f"{member} is down")
                continue
            terms = [
                str(core.log.term_at(index))
                for index in range(core.log.begin_index, core.log.end_index + 1)
            ]
            self.output.append(
                f"{member} {core.role.value.lower()} term={core.term} vote={core.vote_for or '-'}"
                f" leader={core.leader_id or '-'} log={','.join(terms) or '-'}"
                f" commit={core.commit_index}"
            )

    def _work(self, member: str) -> None:
        core = self._cores[member]
        while (ready := core.ready()) is not None:
            self._stores[member].store(ready)
            if ready.hard_state is not None:
                self._hard[member] = ready.hard_state
            self._show(member, core, ready)
            for message in (*ready.immediate, *ready.messages):
                if message.target in self._members:
                    self._queue.append(message)
                else:
                    self.output.append(f"  {member} answers {_shown(message)}")
            core.advance()

    def _show(self, member: str, core: RaftCore, ready: Ready) -> None:
        for role in ready.roles:
            self.output.append(f"  {member} becomes {role.value.lower()} in term {core.term}")
        if ready.writes.truncate_after is not None:
            self.output.append(f"  {member} keeps to {ready.writes.truncate_after}")
        if ready.writes.entries:
            stored = ", ".join(f"{one.index}/{one.term}" for one in ready.writes.entries)
            self.output.append(f"  {member} stores {stored}")
        if ready.committed:
            applied = ", ".join(f"{e.index} {e.body.decode()!r}" for e in ready.committed)
            self.output.append(f"  {member} applies {applied}")
        for read in ready.reads:
            self.output.append(f"  {member} may read at {read.index}")
        if ready.failed_reads:
            self.output.append(f"  {member} fails reads {ready.failed_reads}")


def _shown(message: m.RaftMessage) -> str:
    way = f"{message.source}->{message.target or 'client'} term={message.term}"
    if isinstance(message, m.VoteRequest):
        return f"{way} vote? end={message.end_index}/{message.end_term}"
    if isinstance(message, m.VoteResponse):
        return f"{way} vote: {message.result.value}"
    if isinstance(message, m.HeartbeatRequest):
        return f"{way} heartbeat"
    if isinstance(message, m.HeartbeatResponse):
        return f"{way} heartbeat: {message.code.name}"
    if isinstance(message, m.PushRequest):
        entries = ", ".join(f"{one.index}/{one.term}" for one in message.entries)
        return f"{way} {message.kind.value} {entries or '-'} commit={message.commit_index}"
    if isinstance(message, m.PushResponse):
        return f"{way} pushed {message.index}: {message.code.name} end={message.end_index}"
    if isinstance(message, m.TransferRequest):
        return f"{way} take over at {message.ledger_index}"
    assert isinstance(message, m.TransferResponse)
    return f"{way} taken over: {message.code.name}"
