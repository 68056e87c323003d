"""The table of how each group reads each topic: `config/messageRequestMode.json` in stock's
form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.tables.versioned import TableFile, TableWriter, reported
from rocketmq_tw.runtime.slices import InSlices
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.queues import (
    MessageRequestModeTable,
    SetMessageRequestModeRequestBody,
)
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Pairs of a topic and a group whose mode is kept.
MAX_MODES = 100_000
#: Pairs that one step looks at.
_STEP = 500

Modes = dict[str, dict[str, SetMessageRequestModeRequestBody]]


class RequestModes:
    """Topic → group → pull or pop."""

    def __init__(self, file: TableFile, in_thread: InThread, in_slices: InSlices) -> None:
        self._file = file
        self._modes: Modes = {}
        self._count = 0
        self._writer: TableWriter[Modes] = TableWriter(
            file, in_thread, self._copied, _encode, self._take, in_slices
        )

    def load(self) -> None:
        """Takes what the file has; raises what the file's reading raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(MessageRequestModeTable, data))
        if table is not None:
            self._take(table.message_request_mode_map)
            self._writer.loaded()

    def save(self) -> Deferred[None]:
        """See `TableWriter.save`."""
        return self._writer.save()

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """Returns the mode that was set for a topic and group; None without one."""
        return self._modes.get(topic, {}).get(group)

    def set(self, mode: SetMessageRequestModeRequestBody) -> Deferred[None]:
        """Fires once it is kept, and fails where it cannot be; then nothing is changed. Raises
        `RequestError` where it would be one too many."""
        if self.get(mode.topic, mode.consumer_group) is None:
            if self._count >= MAX_MODES:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"{self._count} pairs of a topic and a group have a mode already, and no"
                    " further pair can get one: set defaultMessageRequestMode instead",
                )
            self._count += 1
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        return self._writer.write()

    def forget_unused(self, is_there: Callable[[str, str], bool]) -> Iterator[None]:
        """Forgets the modes for which `is_there(topic, group)` is false; a step for some of them,
        between which modes may be set."""
        looked = forgotten = 0
        for topic in list(self._modes):
            for group in list(self._modes.get(topic, ())):
                looked += 1
                if not is_there(topic, group):
                    forgotten += self._remove(topic, group)
                if looked % _STEP == 0:
                    yield
        if forgotten:
            self._writer.write().addErrback(reported)

    def _remove(self, topic: str, group: str) -> bool:
        groups = self._modes.get(topic, {})
        if groups.pop(group, None) is None:
            return False
        self._count -= 1
        if not groups:
            del self._modes[topic]
        return True

    def encoded(self) -> Callable[[], bytes]:
        """Returns what gives all modes as the file and request 402 carry them, in any thread."""
        return partial(_encode, self._copied())

    def replace_all(self, table: MessageRequestModeTable) -> None:
        """Takes over what a master has."""
        if table.message_request_mode_map != self._modes:
            self._take(table.message_request_mode_map)
            self._writer.write().addErrback(reported)

    def _copied(self) -> Modes:
        return {topic: dict(groups) for topic, groups in self._modes.items()}

    def _take(self, modes: Modes) -> None:
        self._modes = {topic: dict(groups) for topic, groups in modes.items()}
        self._count = sum(map(len, self._modes.values()))


def _encode(modes: Modes) -> bytes:
    return encode_body(MessageRequestModeTable(message_request_mode_map=modes))
