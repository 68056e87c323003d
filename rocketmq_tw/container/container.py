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
    BrokerSetup,
    IBrokerHosting,
    IHostedBroker,
    StartFailed,
)
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.runtime.waiters import Waiters

log = Logger()


class NotAdded(Exception):
    """A broker that was not added; the text says why, as the answer does."""


class NoSuchBroker(Exception):
    """The container has no broker of that identity."""


class BrokerContainer:
    """Adds and removes brokers. What happens to one broker is nothing to the others: while one
    starts, be it for ever, others come and go."""

    def __init__(self, files: BrokerFiles, hosting: IBrokerHosting, in_thread: InThread) -> None:
        """`in_thread` reads the brokers' files."""
        self._files = files
        self._hosting = hosting
        self._in_thread = in_thread
        self._changing = Serial()
        self._brokers: dict[BrokerIdentity, IHostedBroker] = {}
        #: Brokers whose start is under way; fired when it has ended.
        self._starting: dict[BrokerIdentity, Waiters[None]] = {}
        self._is_stopped = False

    @property
    def identities(self) -> list[BrokerIdentity]:
        """The brokers that the container has, in the order in which they came."""
        return list(self._brokers)

    def add(self, path: str) -> Deferred[BrokerIdentity]:
        """Starts the broker that the file at `path` describes and fires once it serves; fails with
        `NotAdded`."""
        return self._changing.run(self._read, path).addCallback(self._add)

    def remove(self, identity: BrokerIdentity) -> Deferred[str | None]:
        """Stops a broker, also one that still starts, and fires once all that it accepted is on
        disk, with the path of its file, None where it had not come to serve; fails with
        `NoSuchBroker`."""
        return self._give_up([identity]).addCallback(
            lambda given_up: self._changing.run(self._remove, identity, bool(given_up))
        )

    @inlineCallbacks
    def stop(self) -> Generator[Any, Any, None]:
        """Stops all brokers, slaves before masters, and starts that are under way; none is added
        any more. Never fails."""
        self._is_stopped = True
        given_up = self._give_up(list(self._starting))
        yield self._changing.run(self._stop)
        yield given_up
        # Those that served before they could be given up.
        yield self._changing.run(self._stop)

    def _give_up(self, identities: Iterable[BrokerIdentity]) -> Deferred[Any]:
        """Ends starts that are under way; fires with a list as long as there were such, once they
        are over."""
        starts = {each: self._starting[each] for each in identities if each in self._starting}
        waiting = [start.wait() for start in starts.values()]
        for identity in starts:
            self._hosting.give_up(identity)
        return DeferredList(waiting)

    @inlineCallbacks
    def _read(self, path: str) -> Generator[Any, Any, BrokerSetup]:
        """Reads a broker's file, and keeps its place."""
        try:
            setup = yield self._in_thread(lambda: self._files.read(path))
        except FileRefused as error:
            raise NotAdded(str(error)) from error
        identity: BrokerIdentity = setup.identity
        if self._is_stopped:
            raise NotAdded("the container stops")
        if identity in self._brokers or identity in self._starting:
            raise NotAdded(
                f"{identity.canonical_name} has already been added to current broker container"
            )
        self._starting[identity] = Waiters()
        return setup

    @inlineCallbacks
    def _add(self, setup: BrokerSetup) -> Generator[Any, Any, BrokerIdentity]:
        identity = setup.identity
        try:
            if self._is_stopped:
                raise NotAdded("the container stops")
            self._brokers[identity] = yield self._hosting.start(setup)
        except StartFailed as error:
            raise NotAdded(f"start broker failed, {error}") from error
        finally:
            self._starting.pop(identity).fire(None)
        return identity

    @inlineCallbacks
    def _remove(
        self, identity: BrokerIdentity, was_given_up: bool
    ) -> Generator[Any, Any, str | None]:
        broker = self._brokers.pop(identity, None)
        if broker is None and was_given_up:
            return None
        if broker is None:
            raise NoSuchBroker(identity.canonical_name)
        yield self._end([broker])
        return broker.setup.path

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
