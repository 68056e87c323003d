"""Answers what administrators ask a container: brokers come and go, its own configuration.

902 names a file on this machine, so these two requests are for administrators only, whether
`adminAddresses` is set or not.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.container.container import BrokerContainer, NoSuchBroker, NotAdded
from rocketmq_tw.container.interface import BrokerIdentity
from rocketmq_tw.net.administrators import only_administrators
from rocketmq_tw.net.changes import who
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.live_config import LiveConfig
from rocketmq_tw.wire.bodies.base import DataVersion, encode_body
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.broker import (
    AddBrokerRequestHeader,
    GetBrokerConfigResponseHeader,
    RemoveBrokerRequestHeader,
)

log = Logger()


class ContainerRequests:
    """Answers requests 902, 903, 25 and 26 of a container."""

    def __init__(
        self, container: BrokerContainer, live_config: LiveConfig, started_ms: int
    ) -> None:
        """`started_ms`: when the container started, in milliseconds since 1970."""
        self._container = container
        self._live_config = live_config
        self._version = DataVersion(timestamp=started_ms)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.ADD_BROKER: self.add_broker,
            RequestCode.REMOVE_BROKER: self.remove_broker,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
        }

    def add_broker(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 902 once the broker serves; SYSTEM_ERROR with the reason where it does not."""
        _check_administrator(request, peer)
        path = request.header(AddBrokerRequestHeader).config_path
        if not path:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "addBroker config path is empty")
        administrator = who(peer)
        # Its start may take minutes.
        log.info("{peer} wants the broker of {path} added", peer=administrator, path=path)

        def added(identity: BrokerIdentity) -> RemotingCommand:
            log.info(
                "{peer} added {broker} of {path} (was not there)",
                peer=administrator,
                broker=identity.canonical_name,
                path=path,
            )
            return request.response()

        def refuse(failure: Failure) -> RemotingCommand:
            failure.trap(NotAdded)
            why = failure.getErrorMessage()
            log.warn(
                "{peer} added no broker of {path}: {why}", peer=administrator, path=path, why=why
            )
            return request.response(ResponseCode.SYSTEM_ERROR, why)

        return self._container.add(path).addCallbacks(added, refuse)

    def remove_broker(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 903 once the broker has stopped; BROKER_NOT_EXIST where there is no such."""
        _check_administrator(request, peer)
        header = request.header(RemoveBrokerRequestHeader)
        identity = BrokerIdentity(header.broker_cluster_name, header.broker_name, header.broker_id)
        administrator, broker = who(peer), identity.canonical_name
        # What it has accepted is written first.
        log.info("{peer} wants {broker} removed", peer=administrator, broker=broker)

        def removed(path: str | None) -> RemotingCommand:
            log.info(
                "{peer} removed {broker} (was {before})",
                peer=administrator,
                broker=broker,
                before="starting" if path is None else f"of {path}",
            )
            return request.response()

        def refuse(failure: Failure) -> RemotingCommand:
            failure.trap(NoSuchBroker)
            log.warn(
                "{peer} removed no broker: {broker} is not there", peer=administrator, broker=broker
            )
            return request.response(ResponseCode.BROKER_NOT_EXIST, "Broker not exist")

        return self._container.remove(identity).addCallbacks(removed, refuse)

    def update_config(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 25: changes keys of the container, in its file too; fails as
        `LiveConfig.update`."""
        updated = self._live_config.update(request.body, peer)
        return updated.addCallback(lambda remark: request.response(remark=remark or None))

    def get_config(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 26: every key of the container but secrets, as .properties text."""
        version = encode_body(self._version).decode()
        return request.response(
            header=GetBrokerConfigResponseHeader(version=version),
            body=self._live_config.text().encode(),
        )


def _check_administrator(request: RemotingCommand, peer: IPeer) -> None:
    if not peer.identity.is_administrator:
        log.warn(
            "request {code} of {peer} is refused: no administrator",
            code=request.code,
            peer=who(peer),
        )
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"request {request.code} {only_administrators(peer)}"
        )
