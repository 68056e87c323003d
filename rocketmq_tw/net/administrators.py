"""Decides who is heard as an administrator, by address: the check of access until there are
accounts.

Administrators are peers on this machine, and those in the networks of `adminAddresses`. Only they
change the keys that are marked `AdminLive` in `config/`. Where `adminAddresses` is set, only they
may ask for what removes data or ends a service; without it such requests are taken from everybody,
as in stock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.logger import Logger
from zope.interface import implementer

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.changes import who
from rocketmq_tw.net.interfaces import (
    ANONYMOUS,
    IIdentified,
    IPeer,
    ISelectiveCheck,
    PeerIdentity,
)
from rocketmq_tw.net.networks import Networks, host_of, is_loopback
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.controller import (
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
)

#: The identity of a peer whose address is an administrator's.
ADMINISTRATOR = PeerIdentity("administrator", is_administrator=True)

#: Whether a request of some code is one that only administrators may make.
_Guard = Callable[[RemotingCommand], bool]


def is_designation(request: RemotingCommand) -> bool:
    """Returns whether a request 1002 ends the reign of a living master."""
    return request.header(ElectMasterRequestHeader).designate_elect


def is_cleaning_of_the_living(request: RemotingCommand) -> bool:
    """Returns whether a request 1011 forgets brokers that are alive."""
    return request.header(CleanControllerBrokerDataRequestHeader).is_clean_living_broker


def _always(_: RemotingCommand) -> bool:
    return True


def _by_handler(_: RemotingCommand) -> bool:
    """Lets the handler judge: of a change of the configuration by its keys (`LiveConfig`), of a
    container's brokers always (`container/requests.py`)."""
    return False


_GUARDS: Mapping[int, _Guard] = {
    # every server
    RequestCode.UPDATE_BROKER_CONFIG: _by_handler,
    RequestCode.UPDATE_NAMESRV_CONFIG: _by_handler,
    RequestCode.UPDATE_CONTROLLER_CONFIG: _by_handler,
    # brokers
    RequestCode.DELETE_TOPIC_IN_BROKER: _always,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _always,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _always,
    RequestCode.CLONE_GROUP_OFFSET: _always,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _always,
    RequestCode.CLEAN_UNUSED_TOPIC: _always,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _always,
    # broker containers
    RequestCode.ADD_BROKER: _by_handler,
    RequestCode.REMOVE_BROKER: _by_handler,
    # name servers
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _always,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _always,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _always,
    RequestCode.PUT_KV_CONFIG: _always,
    RequestCode.DELETE_KV_CONFIG: _always,
    # controllers
    RequestCode.CONTROLLER_ELECT_MASTER: is_designation,
    RequestCode.CLEAN_BROKER_DATA: is_cleaning_of_the_living,
}


class Administrators:
    """Knows the administrators, whatever a peer has asked for before: those that a check
    identified, and those without an account on this machine or in `networks`, as `adminAddresses`
    names them.
    """

    def __init__(self, networks: str) -> None:
        self._networks = Networks(networks)

    @property
    def are_named(self) -> bool:
        """Whether `adminAddresses` is set."""
        return bool(self._networks)

    def has(self, peer: IIdentified) -> bool:
        """Returns whether a peer is one of them."""
        if peer.identity != ANONYMOUS:
            return peer.identity.is_administrator
        return is_loopback(peer.address) or peer.address in self._networks


@implementer(ISelectiveCheck)
class AdministratorCheck:
    """A `RequestCheck` that identifies administrators, and refuses others what is theirs.

    `needs_no_administrator` tells whether a request that is an administrator's otherwise comes from
    a broker or controller that needs it for its own work.
    """

    log = Logger()
    codes = frozenset(_GUARDS)

    def __init__(
        self,
        config: NettyServerConfig,
        needs_no_administrator: Callable[[RemotingCommand, IPeer], bool],
    ) -> None:
        self._administrators = Administrators(config.admin_addresses)
        self._needs_no_administrator = needs_no_administrator

    def lets_all_pass(self) -> bool:
        """See `ISelectiveCheck`."""
        return False

    def __call__(self, request: RemotingCommand, peer: IPeer) -> None:
        guard = _GUARDS.get(request.code)
        if guard is None:
            return
        if peer.identity == ANONYMOUS and self._administrators.has(peer):
            peer.identity = ADMINISTRATOR
        if (
            self._administrators.are_named
            and not peer.identity.is_administrator
            and guard(request)
            and not self._needs_no_administrator(request, peer)
        ):
            self._refuse(request, peer)

    def _refuse(self, request: RemotingCommand, peer: IPeer) -> None:
        code = RequestCode(request.code)
        self.log.warn(
            "request {code} ({name}) of {peer} is refused: no administrator",
            code=int(code),
            name=code.name,
            peer=who(peer),
        )
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"request {int(code)} {only_administrators(peer)}"
        )


def only_administrators(peer: IPeer) -> str:
    """Says, behind what was asked, that `peer` may not and what to change."""
    return (
        "is taken from administrators only: ask from the server's own machine, or add"
        f" {host_of(peer.address)} to adminAddresses in its file and restart it"
    )
