"""Gets the broker's lasting id from the controllers and tells them where it is.

Next free id (1012), claim on disk, claim at the controller (1013), identity on disk, address
(1003). What is on disk before each request lets a broker that was killed go on where it was: the
controller gives an id to one code only, and gives it to that code again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from twisted.internet.defer import inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.election.identity import Identity, IdentityFiles
from rocketmq_tw.client.controller import ControllerClient
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.group_state import GroupState

log = Logger()


class IdTakenError(Exception):
    """Another broker took the id in the meantime: enrol again."""


class IdForgottenError(Exception):
    """The controllers know nothing of the broker's id; the text says what to do."""


class Enrolled(NamedTuple):
    """A broker that the controllers know, and its group at that time."""

    identity: Identity
    group: GroupState


class Enrolment:
    """One `run` enrols the broker, or fails and may be tried again."""

    def __init__(
        self,
        files: IdentityFiles,
        controller: ControllerClient,
        in_thread: InThread,
        now_ms: Callable[[], int],
    ) -> None:
        self._files = files
        self._controller = controller
        self._in_thread = in_thread
        self._now_ms = now_ms

    @inlineCallbacks
    def run(self, address: str) -> Generator[Any, Any, Enrolled]:
        """Enrols the broker that is reached at `address`. Fails with `IdTakenError`,
        `IdForgottenError`, with `IdentityError` or `OSError` for the files, or with what the
        controllers' answers raise."""
        yield self._in_thread(self._files.settle)
        identity: Identity | None = yield self._in_thread(self._files.identity)
        if identity is None:
            identity = yield self._apply(address)
        else:
            # What a crash may have left beside it.
            yield self._in_thread(self._files.drop_claim)
        group = yield self.register(identity.broker_id, address)
        return Enrolled(identity, group)

    @inlineCallbacks
    def register(self, broker_id: int, address: str) -> Generator[Any, Any, GroupState]:
        """Tells the controllers where the broker of this id is; fails as `run` does."""
        try:
            group: GroupState = yield self._controller.register_broker(
                self._files.cluster, self._files.broker_name, broker_id, address
            )
        except BrokerError as refusal:
            if refusal.code != ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                raise
            raise IdForgottenError(
                f"the controllers do not know id {broker_id} ({refusal}): where they are"
                f" meant to have forgotten it, stop this broker, remove {self._files.path} and"
                " start it, then it joins its group as a new one"
            ) from refusal
        return group

    @inlineCallbacks
    def _apply(self, address: str) -> Generator[Any, Any, Identity]:
        cluster, name = self._files.cluster, self._files.broker_name
        claim = yield self._in_thread(self._files.claim)
        if claim is None:
            wanted = yield self._controller.next_broker_id(cluster, name)
            code = f"{address};{self._now_ms()}"
            claim = yield self._in_thread(lambda: self._files.write_claim(wanted, code))
        broker_id = claim.identity.broker_id
        try:
            yield self._controller.apply_broker_id(cluster, name, broker_id, claim.check_code)
        except BrokerError as refusal:
            # Anything else may mean that the id is this broker's, only the answer was lost.
            if refusal.code != ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                raise
            yield self._in_thread(self._files.drop_claim)
            raise IdTakenError(f"id {broker_id} was taken by another broker") from refusal
        identity: Identity = yield self._in_thread(lambda: self._files.keep(claim))
        log.debug("this broker has the lasting id {id}", id=broker_id)
        return identity
