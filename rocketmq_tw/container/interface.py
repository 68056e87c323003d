"""The interfaces by which a container and the ways in which brokers live in it know each other."""

from __future__ import annotations

import attrs
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.wire.bodies.route import MASTER_ID


@attrs.frozen
class BrokerIdentity:
    """Which broker it is. In a DLedger group the id is the number of the member."""

    cluster: str
    name: str
    broker_id: int

    @property
    def canonical_name(self) -> str:
        """The broker as stock's answers and logs name it."""
        return f"{self.cluster}_{self.name}_{self.broker_id}"


@attrs.frozen(kw_only=True)
class BrokerSetup:
    """A broker as its file describes it, with what belonging to a container changes."""

    #: The file that it was read from.
    path: str
    identity: BrokerIdentity
    config: BrokerConfig
    store_config: MessageStoreConfig
    listen_port: int

    @property
    def kind(self) -> str:
        """The broker's kind as stock's answers name it."""
        if self.store_config.enable_dledger_commit_log:
            return "dLedger"
        return "master" if self.is_master else "slave"

    @property
    def is_master(self) -> bool:
        """Whether the file makes it a master; a group's elections may say otherwise later."""
        return self.identity.broker_id == MASTER_ID


class StartFailed(Exception):
    """A broker that did not start; the text says why and what to change. All that it had opened is
    closed."""


class IHostedBroker(Interface):
    """A broker of the container, from its start to its end."""

    setup: BrokerSetup = Attribute("What it was made of.")

    def stop() -> Deferred[None]:
        """Fires once all that it accepted is on disk and its files are closed, or it is killed;
        fails with the first error, after all else was done."""


class IBrokerHosting(Interface):
    """One of the ways in which brokers live in a container."""

    def start(setup: BrokerSetup) -> Deferred[IHostedBroker]:
        """Fires with the broker once it serves; fails with `StartFailed`."""

    def give_up(identity: BrokerIdentity) -> None:
        """Has a start that is under way end soon, where that is possible."""
