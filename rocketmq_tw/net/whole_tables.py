"""Answers that are the whole of a table (21, 43, 201, 402), in parts where they fit no frame.

Stock's servers and clients know such an answer in one piece only. A client that knows parts asks
with `partFrom` (docs/formats/bodies.md): a table that is small comes as ever, of a larger one the
first part, and the others by what that one said. All are of one moment: the bytes stay here until
the last was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from secrets import token_hex
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.net.host_shares import HostShares
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.shared_results import SharedResults
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.tables import TablePartRequestHeader, TablePartResponseHeader

#: Bytes of a part, where frames are not smaller.
PART_BYTES = 4 << 20
#: Seconds without a question after which the rest of a table is forgotten.
KEPT_SECONDS = 30.0
#: Tables that are kept for those who have not all of them, and bytes of all. The oldest of the host
#: that has most gives way: anybody may ask for one and leave it.
MOST_KEPT, MOST_KEPT_BYTES = 8, 512 << 20


class _Kept(NamedTuple):
    body: bytes
    host: str
    forget: Alarm


class WholeTables:
    """Makes the bytes of a table in a thread, one table at a time; requests that wait for the same
    one share it. `frame_limit`: bytes that a frame may have."""

    def __init__(
        self, clock: IReactorTime, in_slices: Slices, in_thread: InThread, frame_limit: int
    ) -> None:
        self._clock = clock
        self._in_thread = in_thread
        self._shared = SharedResults(in_slices)
        self._part_bytes = min(PART_BYTES, frame_limit // 2)
        #: By the name that a peer gives which asks for more.
        self._kept: dict[str, _Kept] = {}

    def answer(
        self,
        request: RemotingCommand,
        peer: IPeer,
        table: str,
        prepare: Callable[[], Callable[[], bytes]],
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Fires with the response to `request` of `peer` that has the whole of `table`, or the part
        that is asked for: what `prepare` returns makes its bytes, in a thread. Fails with what
        these functions raise; raises `RequestError` where the rest of a table is forgotten."""
        asked = request.header(TablePartRequestHeader)
        start = asked.part_from
        if asked.part_of is not None:
            return self._next(request, asked.part_of, start or 0)

        def first(body: bytes) -> RemotingCommand:
            if start is None or len(body) <= self._part_bytes:
                return request.response(body=body)
            return self._next(request, self._keep(body, host_of(peer.address)), 0)

        return self._shared.get(table, lambda: self._in_thread(prepare())).addCallback(first)

    def stop(self) -> None:
        """Forgets all."""
        for name in list(self._kept):
            self._forget(name)

    def _keep(self, body: bytes, host: str) -> str:
        while self._kept and (
            len(self._kept) >= MOST_KEPT
            or sum(len(kept.body) for kept in self._kept.values()) + len(body) > MOST_KEPT_BYTES
        ):
            self._make_room(len(body), host)
        name = token_hex(8)
        self._kept[name] = _Kept(body, host, Alarm(self._clock, lambda: self._forget(name)))
        return name

    def _make_room(self, size: int, host: str) -> None:
        """Forgets a table, for one of `size` bytes that `host` asks for."""
        held = HostShares()
        for kept in self._kept.values():
            held.add(kept.host, len(kept.body))
        if held.of(host):
            held.add(host, size)
        largest = held.largest()
        self._forget(next(name for name, kept in self._kept.items() if kept.host == largest))

    def _next(self, request: RemotingCommand, name: str, start: int) -> RemotingCommand:
        kept = self._kept.get(name)
        if kept is None or not 0 <= start < len(kept.body):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"there is no part of table {name!r} from byte {start} on any more: ask for the"
                " whole table again",
            )
        end = start + self._part_bytes
        kept.forget.set(KEPT_SECONDS)
        if end >= len(kept.body):
            self._forget(name)
        header = TablePartResponseHeader(part_of=name, whole_length=len(kept.body))
        return request.response(header=header, body=kept.body[start:end])

    def _forget(self, name: str) -> None:
        self._kept.pop(name).forget.cancel()


@inlineCallbacks
def ask_for_whole(
    ask: Callable[[TablePartRequestHeader], Deferred[RemotingCommand]],
) -> Generator[Deferred[Any], Any, list[bytes]]:
    """Fires with a table's bytes, in one or more pieces. `ask` sends the request with a header and
    fires with the answer where it is a success; fails with what `ask` fails with, and with
    `RequestError` where a part lacks."""
    response = yield ask(TablePartRequestHeader(part_from=0))
    parts, size = [response.body], len(response.body)
    told = response.header(TablePartResponseHeader)
    while told.part_of is not None and size < (told.whole_length or 0):
        response = yield ask(TablePartRequestHeader(part_of=told.part_of, part_from=size))
        if not response.body:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{size} of the table's {told.whole_length} bytes came: the next part is empty",
            )
        parts.append(response.body)
        size += len(response.body)
    return parts
