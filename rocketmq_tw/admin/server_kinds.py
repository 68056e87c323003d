"""Finds out which kind of server is at an address, where it does not know what a command asks."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from rocketmq_tw.admin.request_kinds import ServerKind, kind_for
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import Handler, IRemotingClient
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds for each of the questions by which a server is known.
_TIMEOUT = 3.0


@implementer(IRemotingClient)
class TellsKinds:
    """A client whose answers say of a server that does not know a request which kind it is, where
    the request is for another kind."""

    def __init__(self, remoting: IRemotingClient) -> None:
        self._remoting = remoting
        self.lost = remoting.lost
        self._kinds: dict[str, ServerKind | None] = {}

    def request(
        self, address: str, command: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        answer = self._remoting.request(address, command, timeout)

        def look(response: RemotingCommand) -> RemotingCommand | Deferred[RemotingCommand]:
            if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return response
            return Deferred.fromCoroutine(self._tell(address, kind_for(command.code), response))

        return answer.addCallback(look)

    def send_oneway(self, address: str, command: RemotingCommand) -> Deferred[None]:
        return self._remoting.send_oneway(address, command)

    def register(self, code: int, handler: Handler) -> None:
        self._remoting.register(code, handler)

    def close(self) -> Deferred[None]:
        return self._remoting.close()

    async def _tell(
        self, address: str, wanted: ServerKind, response: RemotingCommand
    ) -> RemotingCommand:
        if address not in self._kinds:
            self._kinds[address] = await self._ask(address)
        kind = self._kinds[address]
        if kind is not wanted:
            what = f"no {wanted.title}" if kind is None else f"a {kind.title}, no {wanted.title}"
            response.remark = f"it is {what}: {wanted.option} names a {wanted.title}"
        return response

    async def _ask(self, address: str) -> ServerKind | None:
        for kind in ServerKind:
            question = RemotingCommand.request(kind.question)
            try:
                response = await self._remoting.request(address, question, _TIMEOUT)
            except (RemotingError, ClientError):
                return None
            if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return kind
        return None
