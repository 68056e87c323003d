"""Which kind of server is at an address, where it does not know what a command asks."""

from __future__ import annotations

from enum import Enum

from twisted.internet.defer import Deferred
from zope.interface import implementer

from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import Handler, IRemotingClient
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds for each of the questions by which a server is known.
TIMEOUT = 3.0


class ServerKind(Enum):
    """A kind of server: what it is called, the option that names it, a request that changes
    nothing and that a server of no other kind before this one answers."""

    NAME_SERVER = "name server", "-n", RequestCode.GET_NAMESRV_CONFIG
    BROKER = "broker", "-b", RequestCode.GET_BROKER_RUNTIME_INFO
    CONTROLLER = "controller", "-a", RequestCode.CONTROLLER_GET_METADATA_INFO
    # Brokers, which are asked before, answer this one too.
    CONTAINER = "container", "-c", RequestCode.GET_BROKER_CONFIG

    def __init__(self, title: str, option: str, question: RequestCode) -> None:
        self.title = title
        self.option = option
        self.question = question


_FOR_NAME_SERVERS = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
    }
)
_FOR_CONTROLLERS = frozenset(
    {
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.CLEAN_BROKER_DATA,
    }
)
_FOR_CONTAINERS = frozenset({RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER})


def kind_for(code: int) -> ServerKind:
    """Returns the kind of server that is meant to answer what a command asks."""
    if code in _FOR_NAME_SERVERS:
        return ServerKind.NAME_SERVER
    if code in _FOR_CONTROLLERS:
        return ServerKind.CONTROLLER
    return ServerKind.CONTAINER if code in _FOR_CONTAINERS else ServerKind.BROKER


@implementer(IRemotingClient)
class TellsKinds:
    """A client whose answers say of a server that does not know a request which kind it is, where
    the request is for another kind."""

    def __init__(self, remoting: IRemotingClient) -> None:
        self._remoting = remoting
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
                response = await self._remoting.request(address, question, TIMEOUT)
            except (RemotingError, ClientError):
                return None
            if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return kind
        return None
