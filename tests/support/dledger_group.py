"""Brokers of a DLedger group, stock's and ours, as processes; and what their files have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rocketmq_tw.raft.bodies import (
    DLedgerRequestCode,
    TransferRequestBody,
    encode_dledger_body,
)
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.cluster import make_broker
from tests.support.dledger_entries import read_entries
from tests.support.dledger_findings import Writers, written
from tests.support.outages import Outage
from tests.support.ports import ReservedPort
from tests.support.processes import TEST_SETTINGS, BrokerProcess, NameServerProcess
from tests.support.remoting import ask
from tests.support.replicas import log_end, runtime_number
from tests.support.running import Running
from tests.support.storecheck import Record, StoreDamaged, check_queues
from tests.support.wait import PeerFailed, wait_until

FILE_SIZE = int(TEST_SETTINGS["mappedFileSizeCommitLog"])
#: Stock's members wait 6 s for a heartbeat and 2 s for each vote of a dead one.
ELECTION_LIMIT = 240.0
#: After a kill stock 5.3.3 cuts its consume queues too far, since it counts entries without their
#: headers, and by default it goes on filling them at what was committed: see docs/replication.md.
SOUND_STOCK = {"recheckReputOffsetFromCq": "true"}
#: Seconds for the answer to a request to hand over; who does not answer is asked again.
_TRANSFER_TIMEOUT = 5.0


def group_keys(group: str, addresses: Sequence[str], number: int) -> dict[str, str]:
    """What a broker's configuration says of its group, whose members are at these addresses."""
    return {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": group,
        "dLegerPeers": ";".join(f"n{index}-{address}" for index, address in enumerate(addresses)),
        "dLegerSelfId": f"n{number}",
        "brokerRole": "ASYNC_MASTER",
    }


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
        addresses = [port.address for port in self._ports]
        self.members: list[BrokerProcess] = []
        for number, kind in enumerate(kinds):
            keys = group_keys(name, addresses, number) | {"slaveReadEnable": "true"}
            keys |= (SOUND_STOCK if kind.startswith("5.") else {}) | (settings or {})
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
            running = {one.address: one for one in self.members if one.running and not one.away}
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

    def hand_over(self, number: int) -> None:
        """Has the leader hand over to the member with this number; back when that is the master. A
        member of ours says which term it is."""

        def handed_over() -> bool:
            master = self.wait_master(len(self.members))
            if master is not self.members[number]:
                self._ask_to_hand_over(self.number_of(master), number)
            return master is self.members[number]

        wait_until(
            handed_over,
            f"n{number} of {self.name} to be the master",
            limit=ELECTION_LIMIT,
            interval=0.5,
        )

    def _ask_to_hand_over(self, leader: int, number: int) -> None:
        request = RemotingCommand.request(DLedgerRequestCode.LEADERSHIP_TRANSFER)
        request.body = encode_dledger_body(
            TransferRequestBody(
                group=self.name,
                remote_id=f"n{leader}",
                local_id=f"n{number}",
                term=max(runtime_number(one, "dLedgerTerm") for one in self.members),
                transfer_id=f"n{leader}",
                transferee_id=f"n{number}",
            )
        )
        ask(self._ports[leader].address, request, _TRANSFER_TIMEOUT)

    def fail_master(self, outage: Outage = Outage.KILL) -> BrokerProcess:
        """The master goes; back when another one has taken over."""
        master = self.wait_master()
        outage.begin(master)
        self.wait_master()
        return master

    def wait_equal(self) -> int:
        """Waits until all have all that the master has in their logs."""

        def end() -> int:
            ends = {member.home.name: log_end(member) for member in self.members}
            end, *others = set(ends.values())
            if others or end <= 0:
                raise PeerFailed(f"the logs end at {ends}")
            return end

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
        return read_entries(directory, FILE_SIZE, member.home)

    def check(self, member: BrokerProcess) -> dict[tuple[str, int], list[Record]]:
        """The records of each queue of a member that does not run, where its log and its queues
        agree; raises `StoreDamaged` where they do not."""
        log = list(written(self.entries(member)))
        doubled = self.writers.doubled(log)
        if doubled:
            raise StoreDamaged("queue offsets that stand twice:\n  " + "\n  ".join(doubled))
        queues: dict[tuple[str, int], list[Record]] = defaultdict(list)
        for one in log:
            if one.record.queued:
                queues[one.record.topic, one.record.queue].append(one.record)
        check_queues(member.store, queues)
        return dict(queues)

    @property
    def writers(self) -> Writers:
        """Says of messages which member wrote them."""
        return Writers({one.address: one.home.name for one in self.members})

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
