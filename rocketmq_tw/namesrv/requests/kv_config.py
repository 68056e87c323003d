"""Requests about names and values by namespace: 100, 101, 102, 219."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.namesrv.kv_config import MAX_NAME_BYTES, KvConfig
from rocketmq_tw.net.changes import changed, said_once_made, who
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

log = Logger()


class KvRequests:
    """Puts, gets and deletes values of `kv`, and shows all of a namespace."""

    def __init__(self, kv: KvConfig) -> None:
        self._kv = kv

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.namespace,
        }

    def put(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 100: sets a value; raises, or fails, as `KvConfig.put` does."""
        header = request.header(PutKVConfigRequestHeader)
        before = self._kv.get(header.namespace, header.key)
        kept = self._kv.put(header.namespace, header.key, header.value)
        return self._said(kept, peer, header, header.value, before).addCallback(
            lambda _: request.response()
        )

    def get(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 101: a value; QUERY_NOT_FOUND where there is none."""
        header = request.header(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND,
                f"the namespace {header.namespace} has no key {header.key}",
            )
        return request.response(header=GetKVConfigResponseHeader(value=value))

    def delete(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 102: removes a value; success also where there is none."""
        header = request.header(DeleteKVConfigRequestHeader)
        before = self._kv.get(header.namespace, header.key)
        kept = self._kv.delete(header.namespace, header.key)
        return self._said(kept, peer, header, None, before).addCallback(
            lambda _: request.response()
        )

    @staticmethod
    def _said(
        kept: Deferred[None],
        peer: IPeer,
        header: PutKVConfigRequestHeader | DeleteKVConfigRequestHeader,
        value: str | None,
        before: str | None,
    ) -> Deferred[None]:
        return said_once_made(
            kept,
            log,
            "{peer} {what} the value of {key} in {namespace}: {change}",
            peer=who(peer),
            what="deletes" if value is None else "sets",
            change=changed(value, before),
            key=header.key[:MAX_NAME_BYTES],
            namespace=header.namespace[:MAX_NAME_BYTES],
        )

    def namespace(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 219: all names and values of a namespace; QUERY_NOT_FOUND where there is none."""
        header = request.header(GetKVListByNamespaceRequestHeader)
        body = self._kv.namespace(header.namespace)
        if body is None:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND, f"there is no namespace {header.namespace}"
            )
        return request.response(body=body)
