"""Brings a broker back before it is registered, where slaves act for masters ("Slave Acting
Master", pre-online).

A master that was away has older offsets than the slave that acted for it. So it stays isolated: it
asks name servers which brokers of the group live, tells each that it is about to be back, and is
followed by all of them over HA. Then none of them acts any more, and no log is longer than its own.
It takes their offsets over, and becomes the master. Where one of them does not follow in time, the
links are closed for a while, so that a slave acts again.

A slave is registered once it follows the master that lives.

Rules: stock's `BrokerPreOnlineService`; docs/acting.md, "When a slave acts" and "A master that lost
messages".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.acting.missing_slaves import MissingSlaves
from rocketmq_tw.broker.acting.taking_back import TakingBack
from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part
from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.replicas.members import find_hosts
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.holder import RoleChanges
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.net.networks import Networks
from rocketmq_tw.runtime.log_throttle import LogThrottle
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError

#: Seconds between two tries, and between two lines in the log that say why it waits.
TRY_SECONDS = 0.5
SAY_SECONDS = 30.0
#: Seconds that slaves get to follow, and for which they are left alone where one of them did not.
FOLLOW_SECONDS = 10.0
_PAUSE_SECONDS = 30.0
#: Seconds after which a slave that came or went is in the file.
SLAVES_SECONDS = 1.0
#: Requests by which slaves copy what this broker takes over from them first.
_COPIED = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    }
)
#: What the log advises while this broker waits.
_WAIT_ADVICE = "a start with skipPreOnline=true does not wait"
_KEEP_ADVICE = (
    "they are kept where that slave becomes the master: docs/acting.md, A master that lost"
    " messages; a start with skipPreOnline=true would lose them"
)

log = Logger()


class NotYetError(Exception):
    """The broker cannot be registered yet; the text says why."""


class LostMessagesError(NotYetError):
    """A slave has messages that this master has no more."""


class PreOnline(Part):
    """Sets `RoleChanges.ask_group_first`. Asks the group before the first role where the
    configuration has enableSlaveActingMaster, totalReplicas above 1 and name servers, and not
    skipPreOnline."""

    def __init__(
        self,
        host: Host,
        changes: RoleChanges,
        addresses: Addresses,
        writing: Writing,
        cluster: Cluster,
        replicas: Replicas,
        taking_back: TakingBack,
    ) -> None:
        self._host = host
        self._logger = host.named(log)
        self._changes = changes
        self._addresses = addresses
        self._store = writing.store
        self._membership = cluster.membership
        self._replicas = replicas
        self._taking_back = taking_back
        self._tries: PeriodicCall | None = None
        #: Ends that slaves are refused what they copy.
        self._let_copy: Callable[[], None] = lambda: None
        #: While slaves may connect: since when, and those that were told of this broker.
        self._opened_at: float | None = None
        self._told: set[str] = set()
        #: Of these, those that cannot copy the log.
        self._unable: set[str] = set()
        #: What a master knows of its slaves, which it waits for.
        self.slaves = MissingSlaves(host.config, host.reactor.seconds, host.table_file("slaves"))
        #: When they are asked again to follow.
        self._open_from = 0.0
        #: Why it waits, and since when the log says so.
        self._said = LogThrottle[str](SAY_SECONDS)
        changes.ask_group_first = self.begin

    @property
    def is_wanted(self) -> bool:
        """Whether the group is asked before this broker is registered."""
        config, store_config = self._host.config, self._host.store_config
        return (
            config.enable_slave_acting_master
            and not config.skip_pre_online
            and store_config.total_replicas > 1
            and bool(self._membership.group.name_servers)
        )

    def tables(self) -> Iterable[KeptTable]:
        if self.is_wanted:
            save = partial(self.slaves.save, self._host.in_thread)
            yield KeptTable("the slaves of this master", self.slaves.load, save, SLAVES_SECONDS)

    @inlineCallbacks
    def begin(self, state: RoleState) -> Generator[Deferred[Any], Any, None]:
        """Leads the broker towards `state`. Fires once it has the role where the group is not to be
        asked, else once it is ready to be found by its group."""
        if not self.is_wanted:
            yield self._changes.change(state)
            return
        self._taking_back.begin(as_slave=state.role is not Role.MASTER)
        if state.role is Role.MASTER:
            # The links that an earlier return opened were closed with the role.
            self._opened_at, self._open_from = None, self._host.reactor.seconds()
            self._let_copy()
            self._let_copy = self._host.listener.add_check(self._refuse_copies)
        else:
            self._membership.hold()
            yield self._changes.change(state)
        self._said.forget()
        self._tries = PeriodicCall(
            self._host.reactor,
            "asking the group before the registration",
            TRY_SECONDS,
            lambda: self._try(state),
            may_hang=True,
        )
        self._tries.start(now=True)

    def stop(self) -> None:
        self._end()

    def _end(self) -> None:
        tries, self._tries = self._tries, None
        if tries is not None:
            tries.stop()
        self._let_copy()

    def _refuse_copies(self, request: RemotingCommand, peer: IPeer) -> None:
        if request.code in _COPIED:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                "this master is about to be back, and takes over from its slaves what they have",
            )

    @inlineCallbacks
    def _try(self, state: RoleState) -> Generator[Deferred[Any], Any, None]:
        tries = self._tries
        try:
            members = yield self._living()
            if state.role is Role.MASTER:
                members.pop(state.broker_id, None)
                self._check_expected(members)
                yield self._take_over(state, members)
            else:
                members.pop(state.broker_id, None)
                yield self._follow(members)
        except (NotYetError, RemotingError, RequestError, WireError, OSError) as why:
            lost = isinstance(why, LostMessagesError)
            self._wait(str(why), _KEEP_ADVICE if lost else _WAIT_ADVICE)
            yield self._close_late()
            return
        if self._tries is not tries:
            # Stopped meanwhile.
            return
        if state.role is Role.MASTER:
            self._logger.info(
                "this broker becomes the master; its slaves: {slaves}", slaves=members
            )
            try:
                yield self._changes.change(state)
            except Exception as error:
                # The links are closed with that.
                self._opened_at = None
                self._wait(f"it cannot enter its role: {error}", _WAIT_ADVICE)
                return
        else:
            self._membership.release()
        self._end()

    @inlineCallbacks
    def _living(self) -> Generator[Deferred[Any], Any, dict[int, str]]:
        """Fires with the brokers of the group that some name server knows, id -> address."""
        answers = yield self._membership.group.ask()
        if all(members is None for members in answers.values()):
            self.slaves.nobody_answers()
            raise NotYetError(
                "no name server tells which brokers of the group live: "
                + ", ".join(sorted(answers))
            )
        return {
            number: address
            for members in answers.values()
            for number, address in (members or {}).items()
        }

    # A master

    def _check_expected(self, slaves: Mapping[int, str]) -> None:
        """Fails while a slave is missing that may be back soon."""
        missing = self.slaves.waited_for(slaves.keys())
        if missing:
            raise NotYetError(
                f"no name server lists its slaves {sorted(missing)}, which were there before"
            )

    @inlineCallbacks
    def _take_over(
        self, state: RoleState, slaves: Mapping[int, str]
    ) -> Generator[Deferred[Any], Any, None]:
        """Fires once all of `slaves` follow this broker, and what they have counts here; fails with
        what one of them lacks."""
        calls = self._taking_back.calls
        if self._opened_at is None:
            if self._host.reactor.seconds() < self._open_from:
                raise NotYetError(self._said.last or "")
            # Nobody is disturbed before all of them can be.
            for address in slaves.values():
                yield calls.master(address)
                yield self._check_log(address)
            yield self._replicas.open_links(state)
            self._opened_at, self._told = self._host.reactor.seconds(), set()
            self._unable = set()
        # One that was away may not know it any more.
        self._told &= set(slaves.values())
        master = Master(self._addresses.broker, self._addresses.ha)
        for address in set(slaves.values()) - self._told:
            if not (yield calls.announce(address, master, self._store.flushed_offset)):
                self._logger.error("the slave {slave} cannot write its disk", slave=address)
                self._unable.add(address)
            self._told.add(address)
        yield self._check_links(slaves)
        yield self._taking_back.take(*slaves.values())

    @inlineCallbacks
    def _check_log(self, slave: str) -> Generator[Deferred[Any], Any, None]:
        """Fails where this broker's log ends in front of messages that a slave has: a power loss
        took them, and the slave would not follow."""
        calls, end = self._taking_back.calls, self._store.end_offset
        theirs = yield calls.log_range(slave)
        if theirs.end <= end:
            return
        file_size = self._host.store_config.mapped_file_size_commit_log
        # What follows may be the part of a message that the slave got before its master died.
        goes_on = theirs.end > (end // file_size + 1) * file_size
        if goes_on or (yield calls.record(slave, end)):
            raise LostMessagesError(
                f"the log of the slave {slave} goes on to {theirs.end}, this broker lost what is"
                f" behind {end} of its own"
            )

    @inlineCallbacks
    def _check_links(self, slaves: Mapping[int, str]) -> Generator[Deferred[Any], Any, None]:
        """Fires once each slave that can copy the log has a link of its own; fails with the first
        that has none."""
        hosts = yield find_hosts(self._host, slaves.values())
        # As long as they hear this master and do not act; idle ones speak each interval.
        within_ms = max(
            self._host.config.broker_not_active_timeout_millis,
            2 * self._host.store_config.ha_send_heartbeat_interval,
        )
        reported = self._replicas.reported(within_ms)
        trusted = Networks(self._host.store_config.ha_addresses)
        for number, address in slaves.items():
            if address in self._unable:
                continue
            link = next((one for one in reported if one in hosts[address] or one in trusted), None)
            if link is None:
                raise NotYetError(f"slave {number} at {address} does not copy this broker's log")
            reported.remove(link)

    @inlineCallbacks
    def is_followed_by(self, slaves: Mapping[int, str]) -> Generator[Deferred[Any], Any, bool]:
        """Fires with whether each of these slaves, id -> address, has a link to this master."""
        try:
            yield self._check_links(slaves)
        except (NotYetError, OSError):
            return False
        return True

    @inlineCallbacks
    def _close_late(self) -> Generator[Deferred[Any], Any, None]:
        """Closes the links where not all slaves followed in time."""
        now, opened_at = self._host.reactor.seconds(), self._opened_at
        if opened_at is not None and now - opened_at >= FOLLOW_SECONDS:
            self._opened_at, self._open_from = None, now + _PAUSE_SECONDS
            yield self._replicas.close_links()

    # A slave

    @inlineCallbacks
    def _follow(self, members: Mapping[int, str]) -> Generator[Deferred[Any], Any, None]:
        """Fires once this broker follows the master that lives; where none does, once what another
        slave did that acted meanwhile counts here, unless that one's log goes on behind this."""
        address = members.get(MASTER_ID)
        if address is None:
            for other in members.values():
                log_range = yield self._taking_back.calls.log_range(other)
                if log_range.end <= self._store.flushed_offset:
                    yield self._taking_back.take(other)
            return
        if self._replicas.copies_master:
            return
        master = yield self._taking_back.calls.master(address)
        if not master.ha_address:
            # It is about to be the master, and will ask.
            return
        self._replicas.follow(master)
        if not self._replicas.copies_master:
            raise NotYetError(f"the log of the master {address} is not copied yet")

    def _wait(self, why: str, advice: str) -> None:
        if self._said.is_due(why, self._host.reactor.seconds()):
            self._logger.warn(
                "this broker is not registered yet: {why} ({advice})", why=why, advice=advice
            )
