"""The state machine that the Raft group feeds."""

import msgspec
from twisted.logger import Logger
from zope.interface import implementer

from rocketmq_tw.controller.core.events import EventError, decode_event
from rocketmq_tw.controller.core.state import ControllerState
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.state_machine import IStateMachine, SnapshotError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ControllerState).decode


@implementer(IStateMachine)
class ControllerMachine:
    """Applies events to `state`; what is no event changes nothing, here and in stock's."""

    log = Logger()

    def __init__(self) -> None:
        self.state = ControllerState()

    def apply(self, entry: Entry) -> None:
        if not entry.body:
            return
        try:
            event = decode_event(entry.body)
        except EventError as error:
            self.log.warn(
                "entry {index} of the log is passed over: {reason}",
                index=entry.index,
                reason=error,
            )
            return
        self.log.debug("entry {index}: {event}", index=entry.index, event=event)
        self.state.apply(event)

    def take_snapshot(self) -> bytes:
        return _encode(self.state)

    def check_snapshot(self, data: bytes) -> None:
        _state_of(data)

    def load_snapshot(self, data: bytes) -> None:
        self.state = _state_of(data)


def _state_of(data: bytes) -> ControllerState:
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SnapshotError(str(error)) from error
