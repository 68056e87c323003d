"""Names and values by namespace, kept in stock's `kvConfig.json` (docs/formats/config-files.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.store.table_files import CertainWrites, read_table_file, write_table_file
from rocketmq_tw.structs import field
from rocketmq_tw.wire.bodies.base import Body, decode_table, encode_body
from rocketmq_tw.wire.bodies.stats import KVTable
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
    """Keeps values by namespace and key. What was put is on stable storage when `put` fires, and in
    memory only then. Changes are made one after the other, each in a thread: a disk may be slow,
    and values many."""

    def __init__(self, files: IFiles, path: str, in_thread: InThread = at_once) -> None:
        self._files = files
        self._path = path
        self._file = CertainWrites(partial(write_table_file, files, path))
        self._in_thread = in_thread
        self._changing = Serial()
        self._table: dict[str, dict[str, str]] = {}
        self._encoded: dict[str, bytes] = {}

    def load(self) -> None:
        """Reads the file; there need not be one. Raises `DamagedStoreError` where it and its
        `.bak` cannot be read, so that a name server never starts as if nothing had been put."""
        kept = read_table_file(
            self._files,
            self._path,
            lambda data: decode_table(_File, data),
            lambda text: log.warn("{text}", text=text),
        )
        if kept is not None:
            self._table = kept.config_table
            self._encoded = {name: _encode(values) for name, values in self._table.items()}

    def get(self, namespace: str, key: str) -> str | None:
        """Returns the value of a key; None where there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> bytes | None:
        """Returns all keys and values of a namespace as the body of an answer; None where nothing
        was ever put into it. It is made once for each change: every registration is answered with
        one."""
        return self._encoded.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> Deferred[None]:
        """Sets a value. Raises `RequestError` where it is too large; fails with one where it cannot
        be kept."""
        for what, text in (("namespace", namespace), ("key", key)):
            if not text or len(text.encode()) > MAX_NAME_BYTES:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the {what} is empty or too long: give 1 to {MAX_NAME_BYTES} bytes",
                )
        if len(value.encode()) > MAX_VALUE_BYTES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the value is too long: send at most {MAX_VALUE_BYTES} bytes",
            )
        return self._change(namespace, lambda values: {**values, key: value})

    def delete(self, namespace: str, key: str) -> Deferred[None]:
        """Removes a value; the namespace stays, as in stock. Fails as `put` does."""

        def without(values: Mapping[str, str]) -> dict[str, str] | None:
            if key not in values:
                return None
            return {name: text for name, text in values.items() if name != key}

        return self._change(namespace, without)

    def _change(
        self, namespace: str, change: Callable[[Mapping[str, str]], dict[str, str] | None]
    ) -> Deferred[None]:
        """Keeps what `change` makes of the values of a namespace; it returns None where they stay
        as they are."""

        def keep() -> tuple[dict[str, str], bytes] | None:
            # Only this changes the table, and one call at a time.
            former = self._table.get(namespace, {})
            values = change(former)
            if values is None:
                if self._file.is_certain:
                    return None
                values = former
            self._keep({**self._table, namespace: values})
            return values, _encode(values)

        def kept(result: tuple[dict[str, str], bytes] | None) -> None:
            if result is not None:
                self._table[namespace], self._encoded[namespace] = result

        return self._changing.run(lambda: self._in_thread(keep).addCallback(kept))

    def _keep(self, table: Mapping[str, Mapping[str, str]]) -> None:
        data = encode_body({"configTable": table})
        if len(data) > MAX_TOTAL_BYTES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"all values together would have more than {MAX_TOTAL_BYTES} bytes:"
                " delete what is not needed",
            )
        try:
            self._file.write(data)
        except OSError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the value cannot be kept: {error.strerror}"
            ) from error


def _encode(values: dict[str, str]) -> bytes:
    return encode_body(KVTable(table=values))
