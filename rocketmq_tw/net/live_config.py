"""The configuration over the wire: what administrators may read, and change while a server runs.

Requests 25 and 26 of a broker and of a container, 318 and 319 of a name server, 1009 and 1010 of a
controller. What a key accepts, and whether it may change at all, stands at its field (`config/`).
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any

import attrs
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
    StartFile,
    change_properties,
    read_properties,
    write_properties,
)
from rocketmq_tw.config.schema import Key, keys_of, without_effect
from rocketmq_tw.config.values import format_value
from rocketmq_tw.files.atomic import settle, write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.net.administrators import only_administrators
from rocketmq_tw.net.changes import changed, who
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

log = Logger()

#: Bytes of one change; all keys together take less than half of it.
_MAX_BYTES = 16 * 1024

#: The version of stock whose keys are shown.
SHOWN_VERSION = "5.3.3"

#: Writes the texts of changed keys to the configuration file. Fires with what the
#: administrator has to know, an empty text where the next start reads them; fails with
#: `RequestError`.
WriteChanges = Callable[[Mapping[str, str]], "Deferred[str]"]

#: Servers of one process may have one file, which is read and written anew as a whole.
_writing = Lock()


def only_until_stop(changes: Mapping[str, str]) -> Deferred[str]:
    """A `WriteChanges` that keeps nothing: a change holds until the server stops."""
    if not changes:
        return succeed("")
    remark = "the change holds until the server stops, which was started without a file (-c)"
    log.info("{remark}", remark=remark)
    return succeed(remark)


@attrs.frozen
class ConfigRules:
    """The rules by which a kind of server shows and changes its configuration."""

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

    def update(self, body: bytes, peer: IPeer) -> Deferred[str]:
        """Makes the changes of the .properties text in `body` for `peer`, all or none, and logs
        them. Fires with why the next start will not have them, an empty text where it will.

        Fails with a `RequestError` that names the key where it may not be changed, not so or not by
        this peer, and where the changes cannot be written.
        """
        return self._changing.run(self._update, body, peer)

    def _update(self, body: bytes, peer: IPeer) -> Deferred[str]:
        # What is no news here is kept too: the file may say something else, as where it could not
        # be written before.
        changes = [each for each in self._plan(body) if each.is_new or _may_change(each.key, peer)]
        self._check_who_asks(changes, peer)
        warning = self._check_together(changes)
        texts = {change.key.name: change.text for change in changes}

        def written(remark: str) -> str:
            said = [
                f"{each.key.name}={changed(each.text, each.text_before)}"
                for each in changes
                if each.is_new
            ]
            apply_changes(changes)
            log.info(
                "{peer} changed the configuration: {changes}",
                peer=who(peer),
                changes=", ".join(said) or "nothing",
            )
            if warning:
                log.warn("{text}", text=warning)
            return remark

        return self._write(texts).addCallback(written)

    def _plan(self, body: bytes) -> list[Change]:
        if len(body) > _MAX_BYTES:
            raise RequestError(
                self._rules.wrong_value,
                f"{len(body)} bytes of configuration: send at most {_MAX_BYTES}",
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
        guarded = sorted({each.key.name for each in changes if not _may_change(each.key, peer)})
        if guarded:
            log.warn(
                "{peer} wanted to change {keys} and is refused: no administrator",
                peer=who(peer),
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


def _may_change(key: Key, peer: IPeer) -> bool:
    return peer.identity.is_administrator or not key.is_for_administrators


def in_config_file(
    files: IFiles,
    path: str,
    in_thread: InThread,
    *,
    name: str = "the server's file",
    is_made: bool = False,
    overridden: Collection[str] = (),
) -> WriteChanges:
    """Returns a `WriteChanges` that replaces the values in the .properties file at `path`, in a
    thread, and leaves all else of it as it is. Errors call the file `name`. One that is not there
    `is_made` only where no server starts from it: it would be all that the next start has. A start
    does not read those that are `overridden`."""

    def write(changes: Mapping[str, str]) -> str:
        if not changes:
            return ""
        try:
            with _writing:
                _write_changes(files, path, changes, is_made=is_made)
        except (ConfigError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the change cannot be kept: {name}: {reason}"
            ) from error
        unread = sorted(changes.keys() & overridden)
        if not unread:
            return ""
        remark = (
            f"-o on the server's command line gives {', '.join(unread)} too: a start with it does"
            " not read what the file has"
        )
        log.warn("{remark}", remark=remark)
        return remark

    return lambda changes: in_thread(lambda: write(changes))


def _write_changes(files: IFiles, path: str, changes: Mapping[str, str], *, is_made: bool) -> None:
    """Raises `OSError`, and `ConfigError` for a file that is JSON."""
    try:
        read = files.read(path)
    except FileNotFoundError:
        if not is_made:
            raise
        read = b""
    # An editor's mark of UTF-8 in front is not part of the first key, and stays.
    mark = codecs.BOM_UTF8 if read.startswith(codecs.BOM_UTF8) else b""
    old = read.removeprefix(mark).decode("latin-1")
    if old.lstrip().startswith("{"):
        raise ConfigError("it is JSON, change it by hand")
    new = change_properties(old, changes)
    if new == old:
        settle(files, path)
    else:
        write_atomic(files, path, mark + new.encode("latin-1"))


def where_possible(write: WriteChanges) -> WriteChanges:
    """Returns a `WriteChanges` that does what `write` does and warns where it fails, as stock's
    brokers do: the file of a service may be one that only its installer writes."""

    def warn(failure: Failure) -> str:
        failure.trap(RequestError)
        error: Any = failure.value
        remark = f"{error.remark}; it holds until the broker stops"
        log.warn("{remark}", remark=remark)
        return remark

    return lambda changes: write(changes).addErrback(warn)


def kept_config(
    files: IFiles,
    config: NamesrvConfig | ControllerConfig,
    others: Sequence[Config],
    in_thread: InThread,
    *,
    start: StartFile | None = None,
) -> LiveConfig:
    """Returns the configuration of a name server or a controller, whose changes are kept in the
    file of `configStorePath`. `start`: the one that the server was started from, if any."""
    path = config.config_store_path
    is_read = start is not None and start.path == os.path.abspath(path)
    write = in_config_file(
        files,
        path,
        in_thread,
        name="the file of configStorePath",
        is_made=not is_read,
        overridden=start.overridden if start is not None else (),
    )
    return LiveConfig(
        config, others, SERVER_RULES, write if is_read else _for_no_start(write, path)
    )


def _for_no_start(write: WriteChanges, path: str) -> WriteChanges:
    """Returns a `WriteChanges` that does what `write` does, and says that a start has to be told of
    the file."""

    def warn(_: str) -> str:
        log.warn("the change is in {path}, which no start reads unless -c names it", path=path)
        # A peer that is no administrator of the machine is told no paths.
        return "the change is in the file of configStorePath: no start reads it unless -c names it"

    return lambda changes: write(changes).addCallback(warn) if changes else succeed("")
