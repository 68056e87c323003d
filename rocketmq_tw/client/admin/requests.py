"""Makes and sends the requests of all families."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from rocketmq_tw.client.answers import read_answer, read_success
from rocketmq_tw.client.each import at_each
from rocketmq_tw.client.errors import check_success
from rocketmq_tw.client.name_servers import NameServers
from rocketmq_tw.client.properties import from_text, to_text
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header

B = TypeVar("B", bound=Body)
H = TypeVar("H", bound=Header)
T = TypeVar("T")

ADMIN_TIMEOUT = 5.0


class ServerRequests:
    """Asks one server or the name servers, and reads the answer."""

    def __init__(
        self,
        reactor: Any,
        name_servers: str | Sequence[str],
        *,
        remoting: IRemotingClient | None = None,
        tls: TlsConfig | None = None,
        timeout: float = ADMIN_TIMEOUT,
    ) -> None:
        self.remoting: IRemotingClient = remoting or RemotingClient(reactor, tls=tls)
        self.names = NameServers(self.remoting, name_servers)
        self._timeout = timeout

    def close(self) -> Deferred[None]:
        """Closes the connections."""
        return self.remoting.close()

    def request(
        self, address: str, command: RemotingCommand, timeout: float | None = None
    ) -> Deferred[RemotingCommand]:
        """Sends any request to any server; fires with the answer whatever its code."""
        return self.remoting.request(address, command, timeout or self._timeout)

    def _read(
        self,
        address: str,
        command: RemotingCommand,
        read: Callable[[str, RemotingCommand], T],
        timeout: float | None = None,
    ) -> Deferred[T]:
        answer = self.remoting.request(address, command, timeout or self._timeout)
        return answer.addCallback(lambda response: read(address, response))

    def _tell(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> Deferred[None]:
        command = RemotingCommand.request(code, header, body)
        return self._read(address, command, check_success).addCallback(lambda _: None)

    def _body(
        self, address: str, code: int, body_type: type[B], header: Header | None = None
    ) -> Deferred[B]:
        return self._read(address, RemotingCommand.request(code, header), _body_reader(body_type))

    def _whole(self, address: str, code: int, body_type: type[B]) -> Deferred[B]:
        """Fires with the body of an answer with a whole table, which comes in parts where it fits
        no frame. Fails as `_read` does."""
        # What is there for servers is loaded with it, and most commands wait for no table.
        from rocketmq_tw.net.whole_tables import ask_for_whole

        def ask(header: Header) -> Deferred[RemotingCommand]:
            return self._read(address, RemotingCommand.request(code, header), check_success)

        def read(parts: list[bytes]) -> B:
            return read_answer(body_type, address, b"".join(parts))

        return ask_for_whole(ask).addCallback(read)

    def _header(self, address: str, code: int, header: Header, answer: type[H]) -> Deferred[H]:
        return self._read(
            address,
            RemotingCommand.request(code, header),
            lambda address, response: check_success(address, response).header(answer),
        )

    def _change_properties(
        self, address: str, code: int, changes: Mapping[str, str]
    ) -> Deferred[str]:
        command = RemotingCommand.request(code, None, to_text(changes))
        return self._read(
            address,
            command,
            lambda address, response: check_success(address, response).remark or "",
        )

    def _properties(self, address: str, code: int) -> Deferred[dict[str, str]]:
        return self._read(
            address,
            RemotingCommand.request(code),
            lambda address, response: from_text(check_success(address, response).body),
        )

    def _ask_names(
        self,
        make: Callable[[], RemotingCommand],
        read: Callable[[str, RemotingCommand], T],
    ) -> Deferred[T]:
        return self.names.ask(make).addCallback(lambda answer: read(*answer))

    def _names_body(
        self, code: int, body_type: type[B], header: Header | None = None
    ) -> Deferred[B]:
        return self._ask_names(
            lambda: RemotingCommand.request(code, header), _body_reader(body_type)
        )

    def _tell_names(self, code: int, header: Header) -> Deferred[None]:
        told = at_each(self.names.addresses, lambda address: self._tell(address, code, header))
        return Deferred.fromCoroutine(told).addCallback(lambda _: None)


def _body_reader(body_type: type[B]) -> Callable[[str, RemotingCommand], B]:
    return lambda address, response: read_success(body_type, address, response)
