"""Brokers of a DLedger group, stock's and ours, as processes; and what their files have."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.raft.core.entry import ENTRY_HEADER_SIZE, Entry
from rocketmq_tw.raft.store.ledger import open_data
from rocketmq_tw.raft.store.recovery import scan
from tests.support.cluster import make_broker
from tests.support.ports import ReservedPort
from tests.support.processes import TEST_SETTINGS, BrokerProcess, NameServerProcess
from tests.support.replicas import log_end
from tests.support.running import Running
from tests.support.storecheck import Record, StoreDamaged, check_queues, parse_records
from tests.support.wait import wait_until

FILE_SIZE = int(TEST_SETTINGS["mappedFileSizeCommitLog"])
#: Stock's members wait 6 s for a heartbeat and 2 s for each vote of a dead one.
ELECTION_LIMIT = 120.0


class DLedgerGroupProcesses(Running):
    """One broker name with a member of each kind; `members` are in the order of their ids."""

    def __init__(
        self,
        name: str,
        home: Path,
        name_server: NameServerProcess,
        kinds: Sequence[str],
        settings: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.name_server = name_server
        self._ports = [ReservedPort() for _ in kinds]
        peers = ";".join(f"n{number}-{port.address}" for number, port in enumerate(self._ports))
        self.members: list[BrokerProcess] = []
        for number, kind in enumerate(kinds):
            keys = {
                "enableDLegerCommitLog": "true",
                "dLegerGroup": name,
                "dLegerPeers": peers,
                "dLegerSelfId": f"n{number}",
                "brokerRole": "ASYNC_MASTER",
                "slaveReadEnable": "true",
                **(settings or {}),
            }
            where = home / f"n{number}-{kind}"
            self.members.append(make_broker(kind, name, where, [name_server], settings=keys))

    def start(self) -> None:
        """Starts all at once; back when one is master and the others its slaves."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_ready(ELECTION_LIMIT)
        self.wait_master(len(self.members))

    def addresses(self) -> dict[int, str]:
        """Address by broker id, as the name server has them."""
        return self.name_server.addresses_of(self.name)

    def wait_master(self, members: int = 2) -> BrokerProcess:
        """Waits until one is master and so many members in all are registered."""

        def master() -> BrokerProcess | None:
            addresses = self.addresses()
            running = {one.address: one for one in self.members if one.running}
            if sum(address in running for address in addresses.values()) < members:
                return None
            return running.get(addresses.get(0, ""))

        found = wait_until(master, f"a master of {self.name}", limit=ELECTION_LIMIT)
        assert found is not None
        return found

    def wait_leader(self, number: int) -> None:
        """Waits until the member with this number is the master and all are registered."""
        wanted = self.members[number]
        wait_until(
            lambda: self.wait_master(len(self.members)) is wanted,
            f"n{number} of {self.name} to be the master",
            limit=ELECTION_LIMIT,
        )

    def kill_master(self) -> BrokerProcess:
        """kill -9 of the master; back when another one has taken over."""
        master = self.wait_master()
        master.kill()
        self.wait_master()
        return master

    def wait_equal(self) -> int:
        """Waits until all have all that the master has in their logs."""

        def end() -> int:
            ends = {log_end(member) for member in self.members}
            return ends.pop() if len(ends) == 1 else 0

        return wait_until(end, f"equal logs in {self.name}", limit=ELECTION_LIMIT)

    def close(self) -> None:
        for member in self.members:
            member.close()
        for port in self._ports:
            port.release()

    def number_of(self, member: BrokerProcess) -> int:
        return self.members.index(member)

    def entries(self, member: BrokerProcess) -> list[Entry]:
        """All entries of a member that does not run."""
        directory = member.store / f"dledger-n{self.number_of(member)}"
        # Opening may repair: not the member's own files.
        copy = member.home / "entries-seen"
        shutil.rmtree(copy, ignore_errors=True)
        (copy / "data").mkdir(parents=True)
        for path in (directory / "data").iterdir():
            with path.open("rb") as source, (copy / "data" / path.name).open("wb") as target:
                shutil.copyfileobj(source, target)
        data = open_data(PosixFiles(), str(copy), FILE_SIZE)
        try:
            return list(scan(data, data.starts[0])) if data.starts else []
        finally:
            data.close()
            shutil.rmtree(copy, ignore_errors=True)

    def check(self, member: BrokerProcess) -> dict[tuple[str, int], list[Record]]:
        """The records of each queue of a member that does not run, where its log and its queues
        agree; raises `StoreDamaged` where they do not."""
        queues: dict[tuple[str, int], list[Record]] = defaultdict(list)
        for entry in self.entries(member):
            for record in parse_records(entry.body):
                if record.position != entry.pos + ENTRY_HEADER_SIZE:
                    raise StoreDamaged(f"entry {entry.index} at {entry.pos} has {record}")
                if record.queued:
                    queues[record.topic, record.queue].append(record)
        check_queues(member.store, queues)
        return dict(queues)

    def check_all(self, topic: str, acknowledged: set[bytes]) -> int:
        """All members are stopped: each has all that was acknowledged, and the queues of the topic
        are equal. Returns how many messages the topic has."""
        seen = []
        for member in self.members:
            queues = self.check(member)
            seen.append({key: queues[key] for key in sorted(queues) if key[0] == topic})
        bodies = {record.body for records in seen[0].values() for record in records}
        lost = acknowledged - bodies
        assert not lost, f"{len(lost)} of {len(acknowledged)} lost, as {sorted(lost)[:5]}"
        assert all(one == seen[0] for one in seen)
        return sum(map(len, seen[0].values()))
