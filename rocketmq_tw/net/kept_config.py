"""The configuration as the wire sees it: what may be read, what may be changed while running."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred, DeferredLock

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.change import Change, NotChangeable, apply_changes, plan_changes
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.properties import (
    ConfigError,
    change_properties,
    read_properties,
    write_properties,
)
from rocketmq_tw.config.schema import Key, keys_of
from rocketmq_tw.config.values import format_value
from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Of one change; all keys together take a tenth of it.
MAX_BYTES = 64 * 1024
#: What stock refuses whatever `configBlackList` says.
_ALWAYS_BLOCKED = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})


class KeptConfig:
    """Reads and changes the `config` of a name server or a controller, and keeps what is changed
    in its file; `others` can only be read."""

    def __init__(
        self,
        files: IFiles,
        config: NamesrvConfig | ControllerConfig,
        others: Sequence[Config] = (),
        in_thread: InThread = at_once,
    ) -> None:
        self._files = files
        self._in_thread = in_thread
        self._changing = DeferredLock()
        self._config = config
        self._others = others

    def text(self) -> str:
        """Every key that may be told, as a .properties file."""
        return write_properties(
            (key.name, format_value(getattr(config, key.attribute)))
            for config in (self._config, *self._others)
            for key in keys_of(type(config)).values()
            if not (key.is_secret or key.is_local_path)
        )

    def update(self, body: bytes) -> Deferred[dict[str, str]]:
        """Applies the .properties text in `body` and keeps it in the configuration file.

        All of it or nothing: fails with `RequestError` where a key may not be changed, a value is
        wrong or the file cannot be written. Fires with the keys whose value is another now, with
        it.
        """
        if len(body) > MAX_BYTES:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{len(body)} bytes of configuration: send at most {MAX_BYTES}",
            )

        def change() -> Deferred[dict[str, str]]:
            changes = self._plan(body)
            texts = {change.key.name: change.text for change in changes}

            def kept(_: None) -> dict[str, str]:
                apply_changes(changes)
                return texts

            return self._in_thread(lambda: self._keep(texts)).addCallback(kept)

        return self._changing.run(change)

    def _plan(self, body: bytes) -> list[Change]:
        try:
            settings = read_properties(body.decode(), "the request")
        except (UnicodeDecodeError, ConfigError) as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no properties: {error}") from error
        wanted = {setting.key: setting.value for setting in settings}
        blocked = self._blocked()
        try:
            return plan_changes((self._config, *self._others), wanted, blocked)
        except NotChangeable as error:
            live = {key.name for key in keys_of(type(self._config)).values() if key.is_live}
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"{error}; these can: {', '.join(sorted(live - blocked))}",
            ) from error
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error

    def _blocked(self) -> frozenset[str]:
        """What is not told is not compared with guesses either."""
        named = self._config.config_black_list.split(";")
        paths = (key.name for key in self._keys() if key.is_local_path)
        return _ALWAYS_BLOCKED.union((name.strip() for name in named), paths)

    def _keys(self) -> list[Key]:
        return [
            key for each in (self._config, *self._others) for key in keys_of(type(each)).values()
        ]

    def _keep(self, changes: dict[str, str]) -> None:
        if not changes:
            return
        path = self._config.config_store_path
        try:
            old = self._files.read(path).decode("latin-1") if self._files.exists(path) else ""
            write_atomic(self._files, path, change_properties(old, changes).encode("latin-1"))
        except OSError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the change cannot be kept: {error.strerror}"
            ) from error
