"""A member of a DLedger group, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.dledger.member import DLedgerMember
from rocketmq_tw.broker.dledger.role import RoleOfGroup
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.candidacy import Candidacy
from rocketmq_tw.broker.role.holder import RoleChanges, RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.group_log import group_settings, opening_record
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.interfaces import IListener
from rocketmq_tw.net.networks import Networks
from rocketmq_tw.raft.member_addresses import MemberAddresses
from rocketmq_tw.raft.node import RaftNode, Replicated
from rocketmq_tw.raft.requests import DLedgerRequests

#: Seconds between two checks of which member leads.
CHECK_SECONDS = 1.0

log = Logger()


class DLedgerGroup(Part):
    """Takes part in the group that replicates the log, with enableDLegerCommitLog; its leader is
    the master."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        addresses: Addresses,
        changes: RoleChanges,
        writing: Writing,
        replicas: Replicas,
    ) -> None:
        self._host = host
        self._logger = host.named(log)
        self._role = role
        self._addresses = addresses
        self._changes = changes
        self._writing = writing
        self._replicas = replicas
        #: Serves the other members.
        self.listener: IListener | None = None
        self.member: DLedgerMember | None = None
        self._following: RoleOfGroup | None = None
        self._candidacy: Candidacy | None = None
        self._leader: str | None = None

    def start(self) -> None:
        log_of_group = self._writing.group_log
        if log_of_group is None:
            return
        host, writing = self._host, self._writing
        settings = group_settings(host.config, host.store_config)
        node = RaftNode(
            host.reactor,
            settings.node,
            log_of_group.member,
            host.client,
            host.in_thread,
            Replicated(
                opening=lambda position: opening_record(
                    self._addresses.store_host, host.now_ms(), position
                ),
                first_pos=log_of_group.end_offset,
                keeps_store=True,
            ),
        )
        self.member = DLedgerMember(host.reactor, node, log_of_group, writing.store, writing.commit)
        self._candidacy = candidacy = Candidacy(
            host.reactor, writing.health, self._role, host.log_name
        )
        candidacy.changed.add(lambda: node.stand(not candidacy.refusal))
        node.stand(not candidacy.refusal)
        self._following = RoleOfGroup(
            host.reactor,
            self.member,
            writing.dispatcher,
            self._role,
            self._changes.change,
            settings.broker_id,
            candidacy,
        )
        node.when_failed.addErrback(self._failed)
        listener = host.server.listener()
        members = MemberAddresses(
            host.reactor,
            node.config.peers,
            host.in_thread,
            Networks(host.store_config.member_addresses),
        )
        for code, handler in DLedgerRequests(node, members, serves_clients=False).table().items():
            listener.register(code, handler)
        self.listener, self._port = listener, split_address(settings.address)[1]

    def opened(self) -> None:
        if self.member is None or self.listener is None or self._following is None:
            return
        try:
            self.listener.listen(self._port)
        except CannotListenError as error:
            raise ConfigError(
                f"port {self._port} cannot be listened on ({error.socketError.strerror}): change"
                " this member's address in dLegerPeers"
            ) from error
        self.member.node.start()
        self._following.start()

    def enter(self, state: RoleState) -> None:
        commit = self._writing.commit
        if self.member is not None and state.role is Role.MASTER:
            commit.replicator, commit.all_wait = self.member.quorum, True

    def leave(self, state: RoleState) -> Deferred[None] | None:
        if self.member is None or state.role is not Role.MASTER:
            return None
        return self._settle(self.member)

    @inlineCallbacks
    def _settle(self, member: DLedgerMember) -> Generator[Deferred[Any], Any, None]:
        """What was accepted is handed to the group, and its sends are answered."""
        commit = self._writing.commit
        yield commit.flushed()
        yield member.quorum.settled()
        commit.replicator, commit.all_wait = None, False

    def stop(self) -> Deferred[None]:
        if self._candidacy is not None:
            self._candidacy.stop()
        if self._following is not None:
            self._following.stop()
        listener, self.listener = self.listener, None
        closed = succeed(None) if listener is None else listener.stop(0.5)
        member = self.member
        return closed if member is None else closed.addCallback(lambda _: member.node.stop())

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("the check for a new leader", CHECK_SECONDS, self._follow_leader)

    def _follow_leader(self) -> None:
        """Has a follower ask name servers for a new leader's address, and one that is kept out of
        elections only by its full disk know whether another one leads."""
        if self.member is None:
            return
        node = self.member.node
        leader = node.leader_id
        if self._candidacy is not None:
            if leader is None:
                self._candidacy.nobody_leads()
            elif leader != node.config.raft.self_id:
                self._candidacy.another_leads()
        if leader != self._leader:
            self._leader = leader
            self._replicas.forget_master()

    def _failed(self, failure: Failure) -> None:
        self._logger.error(
            "this member of the DLedger group has stopped ({why}): the broker serves nobody before"
            " it is started again",
            why=failure.getErrorMessage(),
        )
        if self._writing.group_log is not None:
            self._writing.group_log.failure = (
                f"this member of the DLedger group has stopped: {failure.getErrorMessage()}; check"
                " the disk and restart"
            )
        if self._following is not None:
            self._following.give_up()

    def metrics(self) -> Iterable[Metric]:
        return () if self._candidacy is None else self._candidacy.metrics()

    def runtime_info(self) -> Mapping[str, str]:
        if self.member is None:
            return {}
        core = self.member.node.core
        return {
            "dLedgerRole": core.role.value,
            "dLedgerTerm": str(core.term),
            "dLedgerLeader": core.leader_id or "",
            "dLedgerEndIndex": str(core.log.end_index),
            "dLedgerCommittedIndex": str(core.commit_index),
        }
