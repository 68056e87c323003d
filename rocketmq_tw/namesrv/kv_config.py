"""Names and values by namespace, kept in stock's `kvConfig.json`."""

from __future__ import annotations

from msgspec import field
from twisted.logger import Logger

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.store.metadata import read_metadata, write_metadata
from rocketmq_tw.wire.bodies.base import Body, decode_table, encode_body
from rocketmq_tw.wire.bodies.kv import KVTable
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Where the queue counts of ordered topics stand: topic to "broker-a:4;broker-b:4".
ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"

MAX_NAME_BYTES = 255
MAX_VALUE_BYTES = 64 * 1024
MAX_TOTAL_BYTES = 8 * 1024 * 1024

log = Logger()


class _File(Body):
    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class KvConfig:
    """What was put is on stable storage when `put` returns, and in memory only then."""

    def __init__(self, files: IFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._table: dict[str, dict[str, str]] = {}
        self._encoded: dict[str, bytes] = {}

    def load(self) -> None:
        """Reads the file; there need not be one. Raises `DamagedStoreError` where it and its
        `.bak` cannot be read, so that a name server never starts as if nothing had been put."""
        kept = read_metadata(
            self._files,
            self._path,
            lambda data: decode_table(_File, data),
            lambda text: log.warn("{text}", text=text),
        )
        if kept is not None:
            self._table = kept.config_table

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> bytes | None:
        """All keys and values of a namespace as the body of an answer; None where nothing was ever
        put into it. It is made once after each change: every registration is answered with one."""
        table = self._table.get(namespace)
        if table is None:
            return None
        encoded = self._encoded.get(namespace)
        if encoded is None:
            encoded = self._encoded[namespace] = encode_body(KVTable(table=table))
        return encoded

    def put(self, namespace: str, key: str, value: str) -> None:
        """Sets a value. Raises `RequestError` where it is too large or cannot be kept."""
        for what, text in (("namespace", namespace), ("key", key)):
            if not text or len(text.encode()) > MAX_NAME_BYTES:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR, f"the {what} needs 1 to {MAX_NAME_BYTES} bytes"
                )
        if len(value.encode()) > MAX_VALUE_BYTES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the value has more than {MAX_VALUE_BYTES} bytes"
            )
        self._keep({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def delete(self, namespace: str, key: str) -> None:
        """Removes a value; the namespace stays, as in stock."""
        if self.get(namespace, key) is None:
            return
        rest = {name: text for name, text in self._table[namespace].items() if name != key}
        self._keep({**self._table, namespace: rest})

    def _keep(self, table: dict[str, dict[str, str]]) -> None:
        data = encode_body(_File(config_table=table))
        if len(data) > MAX_TOTAL_BYTES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"all values together would have more than {MAX_TOTAL_BYTES} bytes:"
                " delete what is not needed",
            )
        try:
            write_metadata(self._files, self._path, data)
        except OSError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the value cannot be kept: {error.strerror}"
            ) from error
        self._table = table
        self._encoded.clear()
