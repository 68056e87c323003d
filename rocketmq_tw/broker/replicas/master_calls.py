"""Asks a slave's master over the remoting protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.timer.progress import TimerCheckpoint, decode_timer_checkpoint
from rocketmq_tw.config.properties import read_properties
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.net.whole_tables import ask_for_whole
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import MessageRequestModeTable
from rocketmq_tw.wire.bodies.stats import KVTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.broker import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
)
from rocketmq_tw.wire.headers.offsets import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from rocketmq_tw.wire.headers.pull import ViewMessageRequestHeader

B = TypeVar("B")

#: Seconds.
_TIMEOUT = 5.0
#: Of a request that is held; it is sent again behind the next copy.
_HELD_TIMEOUT = 3600.0


class LogRange(NamedTuple):
    """A master's log from its oldest file to its end; `boot` is when the master was started, in
    milliseconds of its own clock."""

    start: int
    end: int
    boot: int


class MasterCalls:
    """Each call names the master's address; it fails with `RequestError` where the master
    refuses."""

    def __init__(self, client: IRemotingClient, in_thread: InThread) -> None:
        self._client = client
        self._in_thread = in_thread

    def table(self, address: str, code: int, decode: Callable[[bytes], B]) -> Deferred[B]:
        """Fires with one of the tables that a slave copies, 21, 43, 45, 201 or 402, as `decode`
        makes it in a thread; in parts where the master knows them and it is large."""
        asked = ask_for_whole(lambda header: self._ask(address, code, header))
        return asked.addCallback(lambda parts: self._in_thread(lambda: decode(b"".join(parts))))

    def log_range(self, address: str) -> Deferred[LogRange]:
        """Fires with which log the master has now."""

        def read(response: RemotingCommand) -> LogRange:
            table = decode_body(KVTable, response.body).table
            return LogRange(
                int(table["commitLogMinOffset"]),
                int(table["commitLogMaxOffset"]),
                int(table["bootTimestamp"]),
            )

        return self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO).addCallback(read)

    def timer_checkpoint(self, address: str) -> Deferred[TimerCheckpoint | None]:
        """Fires with how far the master's timer is (60); None where none runs there, as with
        4.x."""

        def read(response: RemotingCommand) -> TimerCheckpoint | None:
            if response.code != ResponseCode.SUCCESS:
                return None
            return decode_timer_checkpoint(response.body)

        return self._request(address, RequestCode.GET_TIMER_CHECK_POINT).addCallback(read)

    def request_modes(self, address: str) -> Deferred[MessageRequestModeTable | None]:
        """Fires with how groups read topics (402); None where the master knows no such thing, as
        with 4.x."""

        def unknown(failure: Failure) -> None:
            failure.trap(RequestError)

        asked: Deferred[Any] = self.table(
            address,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
            lambda data: decode_body(MessageRequestModeTable, data),
        )
        return asked.addErrback(unknown)

    def max_queue_offset(self, address: str, topic: str, queue_id: int) -> Deferred[int]:
        """Fires with where a queue of the master ends; 0 where it has none."""

        def read(response: RemotingCommand) -> int:
            return response.header(GetMaxOffsetResponseHeader).offset

        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        return self._ask(address, RequestCode.GET_MAX_OFFSET, header).addCallback(read)

    def file_size(self, address: str) -> Deferred[int | None]:
        """Fires with the master's mappedFileSizeCommitLog; None where it does not tell its
        configuration."""

        def read(response: RemotingCommand) -> int | None:
            if response.code != ResponseCode.SUCCESS:
                return None
            settings = read_properties(response.body.decode(), "the master's answer")
            sizes = [each.value for each in settings if each.key == "mappedFileSizeCommitLog"]
            return int(sizes[-1]) if sizes else None

        return self._request(address, RequestCode.GET_BROKER_CONFIG).addCallback(read)

    def master(self, address: str) -> Deferred[Master]:
        """Fires with what a broker says of itself as a master (906): its addresses, empty ones
        where it is none."""

        def read(response: RemotingCommand) -> Master:
            told = response.header(ExchangeHAInfoResponseHeader)
            return Master(told.master_address or "", told.master_ha_address or "")

        header = ExchangeHAInfoRequestHeader()
        return self._ask(address, RequestCode.EXCHANGE_BROKER_HA_INFO, header).addCallback(read)

    def announce(self, slave: str, master: Master, flushed: int) -> Deferred[bool]:
        """Tells a slave that `master`, whose log is durable up to `flushed`, is about to be back
        (906); fires once the slave acts for it no more, with False where it says that it cannot
        copy its log."""

        def read(response: RemotingCommand) -> bool:
            return not response.header(ExchangeHAInfoResponseHeader).cannot_copy

        header = ExchangeHAInfoRequestHeader(
            master_ha_address=master.ha_address,
            master_flush_offset=flushed,
            master_address=master.address,
        )
        return self._ask(slave, RequestCode.EXCHANGE_BROKER_HA_INFO, header).addCallback(read)

    def until_stop(self, address: str) -> Deferred[bool]:
        """Fires with whether the master stops: when it does, where it tells, else at once."""

        def read(response: RemotingCommand) -> bool:
            if response.code != ResponseCode.SUCCESS:
                return False
            return bool(response.header(ExchangeHAInfoResponseHeader).stops)

        header = ExchangeHAInfoRequestHeader(until_stop=True)
        code = RequestCode.EXCHANGE_BROKER_HA_INFO
        return self._request(address, code, header, _HELD_TIMEOUT).addCallback(read)

    def record(self, address: str, offset: int) -> Deferred[bytes]:
        """Fires with the record that the master has at an offset of its log; empty where there is
        none."""
        header = ViewMessageRequestHeader(offset=offset)
        return self._request(address, RequestCode.VIEW_MESSAGE_BY_ID, header).addCallback(
            lambda response: response.body if response.code == ResponseCode.SUCCESS else b""
        )

    def _ask(
        self, address: str, code: int, header: Header | None = None
    ) -> Deferred[RemotingCommand]:
        def check(response: RemotingCommand) -> RemotingCommand:
            if response.code != ResponseCode.SUCCESS:
                raise RequestError(response.code, f"{address}: {response.remark}")
            return response

        return self._request(address, code, header).addCallback(check)

    def _request(
        self, address: str, code: int, header: Header | None = None, timeout: float = _TIMEOUT
    ) -> Deferred[RemotingCommand]:
        command = RemotingCommand.request(code, header)
        return self._client.request(address, command, timeout)
