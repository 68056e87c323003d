"""The name servers as this broker sees them: which answer, which have it, and how all are told.

A name server that does not answer is passed over; nothing here fails because of one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import BrokerMemberGroupBody, ClusterInfo
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.namesrv import GetBrokerMemberGroupRequestHeader

#: Seconds for the question which brokers are in the group.
MEMBERS_TIMEOUT = 3.0

log = Logger()


class Master(NamedTuple):
    """What a name server says of the master of a slave's broker name; empty where it has none."""

    address: str
    ha_address: str


class NameServerLink:
    """One name server, and what is known of it: whether it answered last, and when, and whether it
    has taken a registration of this broker. `came_back` is told when it answers after it did not;
    `seconds` is the time."""

    def __init__(
        self,
        client: IRemotingClient,
        address: str,
        came_back: Callable[[NameServerLink], object],
        seconds: Callable[[], float],
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._answered_at = 0.0
        self.address = address
        self._came_back = came_back
        self.is_reachable = True
        #: Whether it is to get no registration for now.
        self.is_held = False
        #: Whether it has taken a registration, and not refused a later one.
        self.has_broker = False
        #: Whether it has taken all topics over a connection that was not lost since.
        self.has_all = False
        #: How many connections to it were lost.
        self.losses = 0
        #: Whether it may have this broker: a registration was sent, and not refused.
        self.may_have_broker = False
        self._registered = Waiters[None]()

    def when_registered(self) -> Deferred[None]:
        """Fires once this name server has taken a registration."""
        return succeed(None) if self.has_broker else self._registered.wait()

    def registered(self, broker_name: str) -> None:
        """Notes that it has taken a registration."""
        if not self.has_broker:
            self.has_broker = True
            # The caller that waits for it says so, in words of its own.
            say = log.debug if len(self._registered) else log.info
            say(
                "broker {name} is registered with name server {name_server}",
                name=broker_name,
                name_server=self.address,
            )
            self._registered.fire(None)

    def lost(self) -> None:
        """Notes that a connection to it was lost: it may be another process now, which has nothing
        of this broker."""
        self.losses += 1
        self.has_all = False

    def forgot(self) -> bool:
        """Notes that it does not list this broker; returns whether it had taken a registration."""
        had_broker, self.has_broker = self.has_broker, False
        return had_broker

    def heard(self) -> None:
        """Notes that it has answered now."""
        self._answered_at = self._seconds()

    @property
    def silent_seconds(self) -> float:
        """Seconds since it has answered; where it never has, since the clock's zero."""
        return self._seconds() - self._answered_at

    def query(self, command: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        """Fires with the answer, whatever its code; fails where none comes within `timeout`
        seconds."""

        def answered(response: RemotingCommand) -> RemotingCommand:
            self.heard()
            return response

        return self._client.request(self.address, command, timeout).addCallback(answered)

    @inlineCallbacks
    def members(self, cluster: str, name: str) -> Generator[Any, Any, Mapping[int, str]]:
        """Fires with the addresses of the brokers of a name, by id; none where this name server
        does not answer. Never fails."""
        header = GetBrokerMemberGroupRequestHeader(cluster_name=cluster, broker_name=name)
        command = RemotingCommand.request(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        try:
            answer = yield self.query(command, MEMBERS_TIMEOUT)
            if answer.code == ResponseCode.SUCCESS:
                group = decode_body(BrokerMemberGroupBody, answer.body).broker_member_group
                return {} if group is None else group.broker_addrs
            # 4.9's name servers tell of the whole cluster only.
            command = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            answer = yield self.query(command, MEMBERS_TIMEOUT)
            brokers = decode_body(ClusterInfo, answer.body).broker_addr_table
            return brokers[name].broker_addrs if name in brokers else {}
        except (RemotingError, WireError):
            return {}

    def tell(
        self,
        command: RemotingCommand,
        timeout: float,
        take: Callable[[NameServerLink, RemotingCommand], None] | None = None,
    ) -> Deferred[None]:
        """Fires once it has answered, or `timeout` seconds have passed; never fails. `take` is
        given an answer of success."""
        return (
            self.query(command, timeout)
            .addCallback(self._answered, command, take)
            .addErrback(self._failed)
        )

    def _answered(
        self,
        response: RemotingCommand,
        command: RemotingCommand,
        take: Callable[[NameServerLink, RemotingCommand], None] | None,
    ) -> None:
        if response.code != ResponseCode.SUCCESS:
            if command.code == RequestCode.REGISTER_BROKER:
                self.has_broker = self.may_have_broker = False
            log.warn(
                "name server {address} answers request {code} with {response}",
                address=self.address,
                code=int(command.code),
                response=response,
            )
            return
        if take is not None:
            take(self, response)
        if not self.is_reachable:
            self.is_reachable = True
            log.info("name server {address} is back", address=self.address)
            self._came_back(self)

    def _failed(self, failure: Failure) -> None:
        if self.is_reachable:
            self.is_reachable = False
            log.warn(
                "name server {address} is passed over: {why}",
                address=self.address,
                why=failure.getErrorMessage(),
            )


Links = Sequence[NameServerLink]


def tell_all(
    links: Links,
    code: int,
    header: Header,
    body: bytes,
    timeout: float,
    take: Callable[[NameServerLink, RemotingCommand], None] | None = None,
) -> Deferred[None]:
    """Sends one request to every name server of `links`; fires when all have answered or failed,
    never fails. `take` is given each answer of success."""
    told = [link.tell(RemotingCommand.request(code, header, body), timeout, take) for link in links]
    return DeferredList(told).addCallback(lambda _: None)
