"""The configuration over the wire: what administrators may read, and change while a server runs.

Requests 25 and 26 of a broker and of a container, 318 and 319 of a name server, 1009 and 1010 of a
controller. What a key accepts, and whether it may change at all, stands at its field (`config/`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import msgspec
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import Change, NotChangeable, apply_changes, plan_changes
from rocketmq_tw.config.container import BrokerContainerConfig
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.config.heartbeats import check_heartbeats
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.properties import (
    ConfigError,
    change_properties,
    read_properties,
    write_properties,
)
from rocketmq_tw.config.schema import Key, keys_of, without_effect
from rocketmq_tw.config.values import format_value
from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.net.administrators import only_administrators
from rocketmq_tw.net.changes import changed
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

log = Logger()

#: Bytes of one change; all keys together take a tenth of it.
MAX_BYTES = 64 * 1024

#: The version of stock whose keys are shown.
SHOWN_VERSION = "5.3.3"

#: Writes the texts of changed keys to the configuration file; fails with `RequestError`.
WriteChanges = Callable[[Mapping[str, str]], "Deferred[None]"]


def only_until_stop(changes: Mapping[str, str]) -> Deferred[None]:
    """A `WriteChanges` that keeps nothing: a change holds until the server stops."""
    if changes:
        log.info("the change holds until the server stops, which was started without a file (-c)")
    return succeed(None)


@attrs.frozen
class ConfigRules:
    """How a kind of server shows and changes its configuration."""

    #: Keys that stock refuses to change whatever `configBlackList` says.
    always_blocked: frozenset[str]
    #: Whether keys that are paths of this machine are shown. Those that are not are not compared
    #: with guesses either.
    shows_paths: bool
    #: The response code for a value that a key does not accept.
    wrong_value: ResponseCode
    #: Returns what to warn of where values of several keys hardly fit, or an empty text; raises
    #: `ConfigError` where they do not.
    check: Callable[[Any], str] = lambda config: ""


BROKER_RULES = ConfigRules(
    frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"}),
    shows_paths=True,
    wrong_value=ResponseCode.INVALID_PARAMETER,
    check=check_heartbeats,
)
CONTAINER_RULES = ConfigRules(
    frozenset({"brokerConfigPaths", "configBlackList", "rocketmqHome"}),
    shows_paths=True,
    wrong_value=ResponseCode.INVALID_PARAMETER,
)
#: The rules of name servers and controllers.
SERVER_RULES = ConfigRules(
    frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}),
    shows_paths=False,
    wrong_value=ResponseCode.SYSTEM_ERROR,
)


class LiveConfig:
    """The configurations of one server, together: `config`, and `others`.

    `write` keeps what is changed.
    """

    def __init__(
        self,
        config: BrokerConfig | NamesrvConfig | ControllerConfig | BrokerContainerConfig,
        others: Sequence[Config],
        rules: ConfigRules,
        write: WriteChanges = only_until_stop,
    ) -> None:
        self._config = config
        self._configs = (config, *others)
        self._rules = rules
        self._write = write
        self._changing = Serial()

    def text(self, more: Mapping[str, str] | None = None) -> str:
        """Returns every key that may be told as a .properties file, with the values of `more`
        beside or instead of theirs; never a secret. Keys of stock's without an effect have stock's
        defaults, so that tools find what they look for."""
        values = without_effect(frozenset(map(type, self._configs)), SHOWN_VERSION) | {
            key.name: format_value(getattr(config, key.attribute))
            for config in self._configs
            for key in keys_of(type(config)).values()
            if not (key.is_secret or self._is_hidden(key))
        }
        return write_properties(sorted((values | dict(more or {})).items()))

    def update(self, body: bytes, peer: IPeer) -> Deferred[None]:
        """Makes the changes of the .properties text in `body` for `peer`, all or none, and logs
        them.

        Fails with a `RequestError` that names the key where it may not be changed, not so or not by
        this peer, and where the changes cannot be written.
        """
        return self._changing.run(self._update, body, peer)

    def _update(self, body: bytes, peer: IPeer) -> Deferred[None]:
        changes = self._plan(body)
        self._check_who_asks(changes, peer)
        warning = self._check_together(changes)
        texts = {change.key.name: change.text for change in changes}

        def written(_: None) -> None:
            said = [f"{each.key.name}={changed(each.text, each.text_before)}" for each in changes]
            apply_changes(changes)
            log.info(
                "{peer} changed the configuration: {changes}",
                peer=peer.address,
                changes=", ".join(said) or "nothing",
            )
            if warning:
                log.warn("{text}", text=warning)

        return self._write(texts).addCallback(written)

    def _plan(self, body: bytes) -> list[Change]:
        if len(body) > MAX_BYTES:
            raise RequestError(
                self._rules.wrong_value,
                f"{len(body)} bytes of configuration: send at most {MAX_BYTES}",
            )
        try:
            settings = read_properties(body.decode(), "the request")
        except (UnicodeDecodeError, ConfigError) as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the body is no .properties text: {error}"
            ) from error
        wanted = {setting.key: setting.value for setting in settings}
        try:
            return plan_changes(self._configs, wanted, self._blocked())
        except NotChangeable as error:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"{error}; keys that can be changed: {', '.join(self._changeable())}",
            ) from error
        except ConfigError as error:
            raise RequestError(self._rules.wrong_value, str(error)) from error

    def _changeable(self) -> list[str]:
        blocked = self._blocked()
        return sorted(
            key.name
            for config in self._configs
            for key in keys_of(type(config)).values()
            if key.is_live and not key.is_secret and key.name not in blocked
        )

    def _check_together(self, changes: Sequence[Change]) -> str:
        """Returns what to warn of once the changes are made; raises `RequestError` where they do
        not fit the other keys."""
        config, check = self._config, self._rules.check
        own = {each.key.attribute: each.value for each in changes if each.config is config}
        if not own:
            return ""
        try:
            warning = check(msgspec.structs.replace(config, **own))
            # What a start or a former change has warned of is no news.
            return "" if warning == check(config) else warning
        except ConfigError as error:
            raise RequestError(self._rules.wrong_value, str(error)) from error

    def _check_who_asks(self, changes: Sequence[Change], peer: IPeer) -> None:
        if peer.identity.is_administrator:
            return
        guarded = sorted({each.key.name for each in changes if each.key.is_for_administrators})
        if guarded:
            log.warn(
                "{peer} wanted to change {keys} and is refused: no administrator",
                peer=peer.address,
                keys=guarded,
            )
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"a change of {', '.join(guarded)} {only_administrators(peer)}",
            )

    def _blocked(self) -> frozenset[str]:
        named = {name.strip() for name in self._config.config_black_list.split(";")}
        hidden = {
            key.name
            for config in self._configs
            for key in keys_of(type(config)).values()
            if self._is_hidden(key)
        }
        return self._rules.always_blocked | named | hidden

    def _is_hidden(self, key: Key) -> bool:
        return key.is_local_path and not self._rules.shows_paths


def in_config_file(files: IFiles, path: str, in_thread: InThread) -> WriteChanges:
    """Returns a `WriteChanges` that replaces the values in the .properties file at `path`, in a
    thread, and leaves all else of it as it is."""

    def write(changes: Mapping[str, str]) -> None:
        if not changes:
            return
        try:
            old = files.read(path).decode("latin-1") if files.exists(path) else ""
            if old.lstrip().startswith("{"):
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    "the change cannot be kept: the server's file is JSON, change it by hand",
                )
            write_atomic(files, path, change_properties(old, changes).encode("latin-1"))
        except OSError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the change cannot be kept: {error.strerror}"
            ) from error

    return lambda changes: in_thread(lambda: write(changes))


def where_possible(write: WriteChanges) -> WriteChanges:
    """Returns a `WriteChanges` that does what `write` does and warns where it fails, as stock's
    brokers do: the file of a service may be one that only its installer writes."""

    def warn(failure: Failure) -> None:
        failure.trap(RequestError)
        log.warn("{reason}; it holds until the broker stops", reason=failure.getErrorMessage())

    return lambda changes: write(changes).addErrback(warn)


def kept_config(
    files: IFiles,
    config: NamesrvConfig | ControllerConfig,
    others: Sequence[Config],
    in_thread: InThread,
) -> LiveConfig:
    """Returns the configuration of a name server or a controller, whose changes are kept in its
    file."""
    write = in_config_file(files, config.config_store_path, in_thread)
    return LiveConfig(config, others, SERVER_RULES, write)
