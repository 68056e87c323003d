"""The brokers of one container: which there are, and how they come and go."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.container.broker_files import BrokerFiles, FileRefused
from rocketmq_tw.container.interface import (
    BrokerIdentity,
    IBrokerHosting,
    IHostedBroker,
    StartFailed,
)
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.threads import InThread

log = Logger()


class NotAdded(Exception):
    """A broker that was not added; the text says why, as the answer does."""


class NoSuchBroker(Exception):
    """The container has no broker of that identity."""


class BrokerContainer:
    """Adds and removes brokers, one after the other. What happens to one broker is nothing to the
    others."""

    def __init__(self, files: BrokerFiles, hosting: IBrokerHosting, in_thread: InThread) -> None:
        """`in_thread` reads the brokers' files."""
        self._files = files
        self._hosting = hosting
        self._in_thread = in_thread
        self._changing = Serial()
        self._brokers: dict[BrokerIdentity, IHostedBroker] = {}
        self._is_stopped = False

    @property
    def identities(self) -> list[BrokerIdentity]:
        """The brokers that the container has, in the order in which they came."""
        return list(self._brokers)

    def add(self, path: str) -> Deferred[BrokerIdentity]:
        """Starts the broker that the file at `path` describes and fires once it serves; fails with
        `NotAdded`."""
        return self._changing.run(self._add, path)

    def remove(self, identity: BrokerIdentity) -> Deferred[None]:
        """Stops a broker and fires once all that it accepted is on disk; fails with
        `NoSuchBroker`."""
        return self._changing.run(self._remove, identity)

    def stop(self) -> Deferred[None]:
        """Stops all brokers, slaves before masters; none is added any more. Never fails."""
        self._is_stopped = True
        return self._changing.run(self._stop)

    @inlineCallbacks
    def _add(self, path: str) -> Generator[Any, Any, BrokerIdentity]:
        if self._is_stopped:
            raise NotAdded("the container stops")
        try:
            setup = yield self._in_thread(lambda: self._files.read(path))
        except FileRefused as error:
            raise NotAdded(str(error)) from error
        identity: BrokerIdentity = setup.identity
        if identity in self._brokers:
            raise NotAdded(
                f"{identity.canonical_name} has already been added to current broker container"
            )
        try:
            broker = yield self._hosting.start(setup)
        except StartFailed as error:
            log.error(
                "{broker} of {path} did not start: {why}",
                broker=identity.canonical_name,
                path=path,
                why=str(error),
            )
            raise NotAdded(f"start broker failed, {error}") from error
        self._brokers[identity] = broker
        log.info("{broker} of {path} is added", broker=identity.canonical_name, path=path)
        return identity

    @inlineCallbacks
    def _remove(self, identity: BrokerIdentity) -> Generator[Any, Any, None]:
        broker = self._brokers.pop(identity, None)
        if broker is None:
            raise NoSuchBroker(identity.canonical_name)
        yield self._end([broker])
        log.info("{broker} is removed", broker=identity.canonical_name)

    @inlineCallbacks
    def _stop(self) -> Generator[Any, Any, None]:
        brokers = list(self._brokers.values())
        self._brokers.clear()
        yield self._end(broker for broker in brokers if broker.setup.kind == "slave")
        yield self._end(broker for broker in brokers if broker.setup.kind != "slave")

    def _end(self, brokers: Iterable[IHostedBroker]) -> Deferred[Any]:
        """Stops brokers; one that fails to has released what it could."""
        return DeferredList([self._end_one(broker) for broker in brokers])

    def _end_one(self, broker: IHostedBroker) -> Deferred[Any]:
        def failed(failure: Failure) -> None:
            name = broker.setup.identity.canonical_name
            log.failure("{broker} did not stop cleanly", failure=failure, broker=name)

        return maybeDeferred(broker.stop).addErrback(failed)
