"""Names and values: 100, 101, 102, 219."""

from twisted.internet.defer import Deferred

from rocketmq_tw.namesrv.kv_config import KvConfig
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)


class KvRequests:
    def __init__(self, kv: KvConfig) -> None:
        self._kv = kv

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.namespace,
        }

    def put(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        header = request.header(PutKVConfigRequestHeader)
        kept = self._kv.put(header.namespace, header.key, header.value)
        return kept.addCallback(lambda _: request.response())

    def get(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND,
                f"the namespace {header.namespace} has no key {header.key}",
            )
        return request.response(header=GetKVConfigResponseHeader(value=value))

    def delete(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        header = request.header(DeleteKVConfigRequestHeader)
        kept = self._kv.delete(header.namespace, header.key)
        return kept.addCallback(lambda _: request.response())

    def namespace(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        header = request.header(GetKVListByNamespaceRequestHeader)
        body = self._kv.namespace(header.namespace)
        if body is None:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND, f"there is no namespace {header.namespace}"
            )
        return request.response(body=body)
