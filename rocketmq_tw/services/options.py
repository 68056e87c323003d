"""The command line that all servers share."""

import os
import pwd
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar, NoReturn

from twisted.logger import Logger
from twisted.python import usage

from rocketmq_tw.config.base import Config
from rocketmq_tw.config.load import Derived, Loaded, Notice, SettingRefused, load, read_tls_config
from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.monitoring import MonitoringConfig, check_labels
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.config.properties import (
    ConfigError,
    Setting,
    StartFile,
    read_config_file,
    read_json,
    read_properties,
)
from rocketmq_tw.interpreter import python_version
from rocketmq_tw.services.background import tell_plainly
from rocketmq_tw.services.logs import say_version, take_over_log
from rocketmq_tw.services.pid_file import choose_pid_file
from rocketmq_tw.services.ports import (
    PortUse,
    check_ports,
    is_open_to_all,
    own_port,
    port_of_monitoring,
)


def whole_number(option: str, lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """Returns how `option`, "--port", reads its number; whatever else raises `UsageError`."""
    accepted = f"of {lowest} or more" if highest is None else f"from {lowest} to {highest}"

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() else -1
        if number < lowest or (highest is not None and number > highest):
            raise usage.UsageError(f"{option} {text}: give a whole number {accepted}")
        return number

    read.coerceDoc = f"A whole number {accepted}."  # type: ignore[attr-defined]
    return read


def read_tls_option(path: str | None, *, for_server: bool = False) -> TlsConfig | None:
    """Returns the file that `--tls-config` names, if any; raises `UsageError` where it cannot be
    used, see `read_tls_config`."""
    if path is None:
        return None
    try:
        return read_tls_config(path, for_server=for_server)
    except ConfigError as error:
        raise usage.UsageError(f"--tls-config: {error}") from error


def _check_user(twistd: Any) -> None:
    """Ends the program with one line where nobody has the number that `-u` gives; twistd finds
    that, with a traceback, once the server starts. `twistd` are its options.

    A name that nobody has never comes here: twistd reads its own options, and ends with a traceback
    of its own, before it loads any command."""
    number = twistd.get("uid")
    # Behind a change of the root there are other users.
    if number is None or twistd.get("chroot"):
        return
    try:
        pwd.getpwuid(number)
    except KeyError as error:
        raise SystemExit(f"-u {number}: no user has this number: give another one") from error


def settle_twistd(
    twistd: Any, log_config: LogConfig, port: int | None = None, *, says_version: bool = True
) -> None:
    """Gives the options of `twistd` that its user left out what suits a server, see
    `choose_pid_file` and `take_over_log`, and says the version; without `twistd` nothing. Ends the
    program where it is to become a user that there is not, and as `choose_pid_file` does."""
    if twistd is not None:
        tell_plainly()
        _check_user(twistd)
        choose_pid_file(twistd, port)
        take_over_log(twistd, log_config, port)
        if says_version:
            say_version(twistd)


def refuse_arguments(given: Sequence[str]) -> None:
    """Ends the program with one line where there are words that belong to no option."""
    if given:
        raise SystemExit(
            f"unexpected {' '.join(given)!r}: a server takes options alone, such as -c FILE and"
            " -o KEY=VALUE; --help shows them"
        )


class ServerOptions(usage.Options):
    """Options of one server; `loaded` has its typed configurations once they are parsed.

    A mistake ends the program with one line that names its place. Later wins: stock's defaults,
    the server's own, the environment, the file, -o, -n.
    """

    log = Logger()

    #: The typed configurations that the server reads.
    types: ClassVar[Sequence[type[Config]]]
    #: Where the server departs from the defaults of `types`.
    own_defaults: ClassVar[Mapping[str, str]] = {}

    optParameters: ClassVar[list[list[Any]]] = [
        ["config", "c", None, "Read this .properties file; stock's keys."],
    ]
    optFlags: ClassVar[list[list[Any]]] = [
        ["print", "p", "Print the effective configuration as a .properties file, and exit."],
        [
            "strict",
            None,
            "Refuse unknown keys of the files of -c and -pc; else they are warned of.",
        ],
    ]
    loaded: Loaded

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__()
        self._environ = environ
        self._single: list[Setting] = []

    def opt_version(self) -> NoReturn:
        """Show the versions of this package and of Python, and exit."""
        print(f"rocketmq_tw {version('rocketmq_tw')} on Python {python_version()}")
        sys.exit(0)

    def opt_set(self, text: str) -> None:
        """KEY=VALUE: Set one key, over the file; may be given several times."""
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise usage.UsageError(f"-o {text}: give key=value")
        self._single.append(Setting(key.strip(), value, "-o", must_be_known=True))

    opt_o = opt_set

    def parseArgs(self, *given: str) -> None:
        refuse_arguments(given)

    def postOptions(self) -> None:
        try:
            notices = self.load()
        except ConfigError as error:
            raise SystemExit(str(error)) from error
        if self["print"]:
            self._check_start()
            for notice in notices:
                if notice.is_warning:
                    sys.stderr.write(f"{notice.text}\n")
            sys.stdout.write(self.effective())
            raise SystemExit(0)
        settle_twistd(
            self.parent,
            self.loaded[LogConfig],
            self.pid_port(),
            says_version=self.says_version(),
        )
        for notice in notices:
            if notice.is_warning:
                self.log.warn("{text}", text=notice.text)
            else:
                self.log.info("{text}", text=notice.text)
        if is_open_to_all(self.loaded[NettyServerConfig].bind_address):
            self.log.warn(
                "bindAddress is {address}, and there is no access control: anybody who reaches a"
                " port of this server may use it; give an address for its users, or use a firewall",
                address=self.loaded[NettyServerConfig].bind_address,
            )

    @property
    def start_file(self) -> StartFile | None:
        """The file of `-c`, if any."""
        if self["config"] is None:
            return None
        return StartFile(
            os.path.abspath(self["config"]), frozenset(setting.key for setting in self._single)
        )

    def load(self) -> Sequence[Notice]:
        """Reads the configuration and returns what was noticed; raises `ConfigError`."""
        settings = self.settings()
        self.loaded = load(self.types, settings, self._environ.get("HOME", "."))
        self.check(self.loaded)
        self._check_labels(settings)
        check_ports(self.ports())
        return self.loaded.notices

    def _check_labels(self, settings: Sequence[Setting]) -> None:
        if MonitoringConfig not in self.types or not self.loaded[MonitoringConfig].is_enabled:
            return
        try:
            check_labels(self.loaded[MonitoringConfig].labels, self.monitored())
        except ValueError as error:
            given = next(each for each in reversed(settings) if each.key == "metricsLabel")
            raise SettingRefused(
                f"{given.origin}: {given.key}={given.value}: {error}", given
            ) from error

    def _check_start(self) -> None:
        """Ends the program with the line of a start that would be refused."""
        from rocketmq_tw.net.errors import TlsConfigError

        try:
            self.check_start()
        except (ConfigError, TlsConfigError) as error:
            raise SystemExit(f"cannot start: {error}") from error

    def check_start(self) -> None:
        """Raises `ConfigError` or `TlsConfigError` for what only a start would find, as far as
        that is known without a port: a start itself needs no look ahead. Reads files of TLS and
        asks for host names."""
        check_tls(self.loaded, self.loaded[TlsConfig])

    def ports(self) -> list[PortUse]:
        """Returns the ports that are listened on, as far as the configuration names them."""
        net = self.loaded[NettyServerConfig]
        return own_port("listenPort", net, net.listen_port) + self.monitoring_port()

    def monitoring_port(self) -> list[PortUse]:
        """Returns the port that Prometheus asks, if any."""
        if MonitoringConfig not in self.types:
            return []
        return port_of_monitoring(self.loaded[MonitoringConfig])

    def monitored(self) -> Sequence[str]:
        """Returns the kinds of servers whose figures the port for monitoring tells, as
        `OWN_LABELS` names them."""
        return ()

    def effective(self) -> str:
        """Returns what `-p` prints."""
        return self.loaded.properties(self.derived())

    def says_version(self) -> bool:
        """Returns whether the server's log begins with the version."""
        return True

    def pid_port(self) -> int | None:
        """Returns a port that tells this server from others of its kind on this machine."""
        return self.loaded[NettyServerConfig].listen_port

    def derived(self) -> Mapping[str, Derived]:
        """Returns the keys that are given no value, with the one that they have."""
        return {}

    def check(self, loaded: Loaded) -> None:
        """Raises `ConfigError` where settings that can be used by themselves do not fit."""

    def settings(self) -> list[Setting]:
        """Returns all settings, the weakest first; raises `ConfigError`."""
        settings = [Setting(key, value, "default") for key, value in self.own_defaults.items()]
        if self["config"] is not None:
            settings += read_file(self["config"], strict=bool(self["strict"]))
        return settings + self._single


class NamesrvAddressOptions(ServerOptions):
    """Options of a server that is a client of name servers: their addresses, and whether it speaks
    TLS to them. As in stock it does where `tls.enable` or `tls.server.mode=enforcing` says so,
    unless `useTLS` says otherwise."""

    optParameters: ClassVar[list[list[Any]]] = [
        ["namesrv", "n", None, "Name servers as host:port, several with ';' between them."],
    ]

    def settings(self) -> list[Setting]:
        settings = super().settings()
        if self._environ.get("NAMESRV_ADDR"):
            settings.insert(
                0,
                Setting(
                    "namesrvAddr",
                    self._environ["NAMESRV_ADDR"],
                    "NAMESRV_ADDR",
                    follows="NAMESRV_ADDR",
                ),
            )
        if self["namesrv"] is not None:
            settings.append(Setting("namesrvAddr", self["namesrv"], "-n"))
        return with_client_tls(settings)


def check_tls(loaded: Loaded, of_server: TlsConfig) -> None:
    """Raises `TlsConfigError` where a server could not speak TLS as its keys say: `of_server` to
    its clients, those of `loaded` to other servers."""
    from rocketmq_tw.net.tls import ServerTls
    from rocketmq_tw.net.tls_contexts import client_context

    ServerTls(of_server)
    if loaded[NettyClientConfig].use_tls:
        client_context(loaded[TlsConfig])


def shown_beside(loaded: Loaded) -> list[Config]:
    """Returns what administrators are shown over the wire beside a server's own keys and those of
    its port: the keys about connections to others, TLS, monitoring and the log."""
    kinds: tuple[type[Config], ...] = (
        NettyClientConfig,
        TlsConfig,
        MonitoringConfig,
        LogConfig,
    )
    return [loaded[kind] for kind in kinds if kind in loaded]


def with_client_tls(settings: list[Setting]) -> list[Setting]:
    """Returns `settings` with `useTLS` before all others, as the keys of TLS have it."""
    last = {setting.key: setting for setting in settings}
    enabled, mode = last.get("tls.enable"), last.get("tls.server.mode")
    first = []
    if enabled is not None:
        origin = f"{enabled.origin} (tls.enable)"
        first = [enabled._replace(key="useTLS", origin=origin, follows="tls.enable")]
    elif mode is not None and mode.value.strip() == "enforcing":
        first = [Setting("useTLS", "true", mode.origin, follows="tls.server.mode")]
    return first + [setting for setting in settings if setting.key != "tls.enable"]


def read_file(path: str, *, strict: bool = False) -> list[Setting]:
    """Returns the settings of a .properties file, or of one with a JSON object, whose keys must be
    known where that is `strict`; raises `ConfigError`."""
    text = read_config_file(path, ": give the path of a file with -c")
    # What is JSON and no object is no list of keys either.
    is_json = text.lstrip().startswith(("{", "[")) or text.strip() == "null"
    settings = (read_json if is_json else read_properties)(text, path)
    return [setting._replace(must_be_known=strict) for setting in settings]
