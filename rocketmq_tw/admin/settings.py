"""Reads what every call needs: name servers, TLS, credentials, the form of output; and the contexts
in which they are kept by name, in a file of YAML."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import click

from rocketmq_tw.admin.yaml_files import read_yaml
from rocketmq_tw.net.address import name_server_addresses

# Its readers would take a part of every start.
if TYPE_CHECKING:
    from rocketmq_tw.client.commands import Credentials
    from rocketmq_tw.config.net import TlsConfig

#: The forms of output, the first one is the default.
FORMS = ("table", "wide", "json", "yaml")
#: The environment variable that names another file of contexts.
FILE_VARIABLE = "RMQADMIN_CONTEXTS"
_CURRENT, _CONTEXTS = "current", "contexts"
_NAME_SERVERS, _TLS, _TLS_CONFIG, _OUTPUT = "name-servers", "tls", "tls-config", "output"
_CREDENTIALS = "credentials"
_KEYS = (_NAME_SERVERS, _TLS, _TLS_CONFIG, _CREDENTIALS, _OUTPUT)
#: What a file of credentials has; the names are those of stock's tools.yml.
_ACCESS_KEY, _SECRET_KEY, _SECURITY_TOKEN = "accessKey", "secretKey", "securityToken"


@attrs.frozen
class Access:
    """How servers are spoken to."""

    #: How TLS is spoken, None without TLS.
    tls: TlsConfig | None = None
    #: The account that signs requests, None for none.
    credentials: Credentials | None = None


@attrs.frozen
class Settings:
    """Settings of a call or of a context; None leaves it to others."""

    name_servers: str | None = None
    #: Whether TLS is spoken, without a look at who answers where no file says otherwise.
    use_tls: bool | None = None
    #: The file with keys of TLS.
    tls_file: str | None = None
    #: The file of the account that signs requests.
    credentials_file: str | None = None
    output: str | None = None
    #: What named these files, for errors about them.
    tls_origin: str = "--tls-config"
    credentials_origin: str = "--credentials"

    def over(self, others: Settings) -> Settings:
        """Returns these settings, and the others where these leave it to them."""
        values = {name: value for name, value in attrs.asdict(self).items() if value is not None}
        if self.tls_file is None:
            values["tls_origin"] = others.tls_origin
        if self.credentials_file is None:
            values["credentials_origin"] = others.credentials_origin
        return attrs.evolve(others, **values)

    def access(self) -> Access:
        """Returns how servers are spoken to; raises `UsageError` for a wrong file."""
        return Access(self.tls(), self.credentials())

    def tls(self) -> TlsConfig | None:
        """Returns how TLS is spoken, None without TLS; raises `UsageError` for a wrong file."""
        if self.tls_file is None and not self.use_tls:
            return None
        from rocketmq_tw.config.net import TlsConfig

        if self.tls_file is None:
            return TlsConfig()
        from rocketmq_tw.config.load import read_tls_config
        from rocketmq_tw.config.properties import ConfigError

        try:
            return read_tls_config(self.tls_file)
        except ConfigError as error:
            raise click.UsageError(f"{self.tls_origin}: {error}") from error

    def credentials(self) -> Credentials | None:
        """Returns the account that signs requests; raises `UsageError` for a wrong file."""
        if self.credentials_file is None:
            return None
        try:
            return _read_credentials(self.credentials_file)
        except FileNotFoundError as error:
            reason = f"{self.credentials_file}: {error.strerror}"
            raise click.UsageError(f"{self.credentials_origin}: {reason}") from error
        except click.UsageError as error:
            raise click.UsageError(f"{self.credentials_origin}: {error.message}") from error

    def to_file(self) -> dict[str, Any]:
        """Returns the settings as they stand in the file."""
        values = {
            _NAME_SERVERS: self.name_servers,
            _TLS: self.use_tls,
            _TLS_CONFIG: self.tls_file,
            _CREDENTIALS: self.credentials_file,
            _OUTPUT: self.output,
        }
        return {name: value for name, value in values.items() if value is not None}


@attrs.frozen
class Contexts:
    """Contexts by name, as they stand in the file, and the name of the current one. What is wrong
    with one is told when that one is asked for: it locks no other one."""

    entries: Mapping[str, Any] = attrs.Factory(dict)
    current: str | None = None

    def named(self, name: str) -> Settings:
        """Returns a context; raises `UsageError` where there is none of the name, or a wrong
        one."""
        self.check_name(name)
        where = f"{path()}: context {name}"
        try:
            found = _from_file(self.entries[name])
        except ValueError as error:
            mend = f"mend it, or rmqadmin context remove {name}"
            raise click.UsageError(f"{where}: {error}: {mend}") from error
        return attrs.evolve(
            found,
            tls_origin=f"{where}: {_TLS_CONFIG}",
            credentials_origin=f"{where}: {_CREDENTIALS}",
        )

    def check_name(self, name: str) -> None:
        """Raises `UsageError` where there is no context of the name."""
        if name not in self.entries:
            known = ", ".join(sorted(self.entries)) or "none: rmqadmin context add makes one"
            raise click.UsageError(f"there is no context {name}; there are: {known}")

    def current_one(self) -> Settings:
        """Returns the current context, nothing where none is; raises `UsageError` for a wrong
        one."""
        if self.current is None:
            return Settings()
        if self.current not in self.entries:
            raise click.UsageError(
                f"{path()}: the current context {self.current!r} is not among them: rmqadmin"
                " context use takes another one"
            )
        return self.named(self.current)


def path() -> str:
    """Returns where contexts are kept."""
    return os.environ.get(FILE_VARIABLE) or os.path.join(
        click.get_app_dir("rmqadmin"), "contexts.yaml"
    )


def read() -> Contexts:
    """Returns the contexts of the file; none where it is empty or not there. Raises `UsageError`
    for a file that is no such one or cannot be read."""
    where = path()
    try:
        value = read_yaml(where)
    except FileNotFoundError:
        return Contexts()
    except click.UsageError as error:
        raise click.UsageError(f"{error.message}: mend or remove it") from error
    if value is None:
        return Contexts()
    entries = value.get(_CONTEXTS) if isinstance(value, dict) else None
    if not isinstance(entries, dict):
        raise click.UsageError(
            f"{where} has no contexts by name under the key {_CONTEXTS!r}: mend or remove it"
        )
    unknown = [key for key in value if key not in (_CURRENT, _CONTEXTS)]
    if unknown:
        raise click.UsageError(
            f"{where}: {unknown[0]!r} is no key of it, those are {_CURRENT} and {_CONTEXTS}: mend"
            " or remove it"
        )
    current = value.get(_CURRENT)
    return Contexts(
        {str(name): entry for name, entry in entries.items()},
        None if current is None else str(current),
    )


def change_contexts(change_them: Callable[[Contexts], Contexts]) -> Contexts:
    """Has the contexts of the file be what `change_them` makes of them, while no other call changes
    it; returns them. Only its owner may read the file. Raises what `change_them` raises, and
    `ClickException` where the file cannot be written."""
    # A link stays one: the file behind it may be one of several machines.
    where = os.path.realpath(path())
    directory = os.path.dirname(where)
    try:
        os.makedirs(directory, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY)
        try:
            # Closing it gives it back.
            fcntl.flock(lock, fcntl.LOCK_EX)
            changed = change_them(read())
            _write(changed, where)
        finally:
            os.close(lock)
    except OSError as error:
        raise click.ClickException(f"{where}: {error.strerror}") from error
    return changed


def _write(contexts: Contexts, where: str) -> None:
    import yaml

    value = {
        _CURRENT: contexts.current,
        _CONTEXTS: dict(sorted(contexts.entries.items())),
    }
    new = f"{where}.new"
    with open(new, "w", encoding="utf-8", opener=_private) as file:
        yaml.safe_dump(value, file, sort_keys=False)
    os.replace(new, where)


def _private(name: str, flags: int) -> int:
    descriptor = os.open(name, flags, 0o600)
    # One that was left by a write that failed may have other rights.
    os.fchmod(descriptor, 0o600)
    return descriptor


def _from_file(values: Any) -> Settings:
    """Returns the settings of an entry; raises `ValueError` for what is none."""
    if not isinstance(values, dict):
        raise ValueError(f"it has no settings by name, those are {', '.join(_KEYS)}")
    unknown = [key for key in values if key not in _KEYS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no setting of a context, those are {', '.join(_KEYS)}")
    for name, value in values.items():
        kind = bool if name == _TLS else str
        if value is not None and not isinstance(value, kind):
            wanted = "true or false" if kind is bool else "a text"
            raise ValueError(f"{name}: {value!r} is not {wanted}")
    settings = Settings(
        name_servers=values.get(_NAME_SERVERS),
        use_tls=values.get(_TLS),
        tls_file=values.get(_TLS_CONFIG),
        credentials_file=values.get(_CREDENTIALS),
        output=values.get(_OUTPUT),
    )
    check(settings)
    return settings


def check(settings: Settings) -> None:
    """Raises `ValueError` that says what is wrong with settings. The files that they name are not
    looked at: where one is gone, other contexts can be used, and this one be removed."""
    if settings.output not in (None, *FORMS):
        raise ValueError(f"{_OUTPUT} {settings.output!r}: give one of {', '.join(FORMS)}")
    if settings.name_servers is not None:
        try:
            name_server_addresses(settings.name_servers)
        except ValueError as error:
            raise ValueError(f"{_NAME_SERVERS}: {error}") from error


def _read_credentials(file: str) -> Credentials:
    """Returns what a file of YAML has; raises `UsageError` that says what is wrong with it, and
    `FileNotFoundError`."""
    values = read_yaml(file, as_texts=True)
    if not isinstance(values, Mapping):
        raise click.UsageError(f"{file}: give {_ACCESS_KEY}: KEY and {_SECRET_KEY}: SECRET")
    known = (_ACCESS_KEY, _SECRET_KEY, _SECURITY_TOKEN)
    for name in values:
        if name not in known:
            raise click.UsageError(f"{file}: {name} is none of {', '.join(known)}")
        # What stands there is a secret, so it is not shown.
        if not isinstance(values[name], str):
            raise click.UsageError(f"{file}: {name} is no text")
    for name in (_ACCESS_KEY, _SECRET_KEY):
        if not values.get(name):
            raise click.UsageError(f"{file} has no {name}")
    from rocketmq_tw.client.commands import Credentials

    return Credentials(
        values[_ACCESS_KEY], values[_SECRET_KEY], values.get(_SECURITY_TOKEN) or None
    )
