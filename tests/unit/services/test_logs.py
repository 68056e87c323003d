"""The lines of a server's log, its files, and the file with its process id."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import LogLevel, PredicateResult, capturedLogs, formatEvent

from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.services import logs
from rocketmq_tw.services.logs import is_wanted, take_over_log
from rocketmq_tw.services.pid_file import choose_pid_file


class Twistd(dict[str, Any]):
    """The options of `twistd`, as far as a server looks at them."""

    subCommand = "rmq-broker"


def event(level: Any, namespace: str = "rocketmq_tw.broker.broker", text: str = "x") -> Any:
    return {
        "log_level": level,
        "log_namespace": namespace,
        "log_format": text,
        "log_time": 1.0,
        "log_system": namespace,
    }


def is_written(level: str, written: Any) -> bool:
    return is_wanted(level)(written) is not PredicateResult.no


@pytest.mark.parametrize("level", ["debug", "info", "warn", "error"])
def test_a_level_has_what_is_as_important(level: str) -> None:
    order = ["debug", "info", "warn", "error", "critical"]
    written = [n for n in order if is_written(level, event(LogLevel.levelWithName(n)))]
    assert written == order[order.index(level) :]


@pytest.mark.parametrize("namespace", ["log_legacy", "twisted.internet.base"])
def test_twisted_speaks_of_itself_for_those_who_look_for_errors(namespace: str) -> None:
    assert not is_written("info", event(LogLevel.info, namespace))
    assert is_written("debug", event(LogLevel.info, namespace))
    assert is_written("info", event(LogLevel.critical, namespace))


@pytest.mark.parametrize("name", ["", "nowhere/server.log"])
def test_a_file_that_cannot_be_written_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    twistd = Twistd(logfile=path, nodaemon=True)
    take_over_log(twistd, LogConfig())
    with pytest.raises(SystemExit, match=f"cannot start: the log {path}: ") as ended:
        logs.make_observer()
    assert str(ended.value.code).endswith(": change --logfile")


def test_old_files_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    twistd = Twistd(logfile=str(path), nodaemon=True)
    take_over_log(twistd, LogConfig(log_file_size=2000, log_files_kept=2))
    observer = getattr(logs, twistd["logger"].rpartition(".")[2])()
    for number in range(300):
        observer(event(LogLevel.info, text=f"line {number}"))
    files = sorted(tmp_path.iterdir(), key=lambda file: file.name)
    assert [file.name for file in files] == ["server.log", "server.log.1", "server.log.2"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o640}
    assert "line 299" in path.read_text()
    assert all(file.stat().st_size < 2200 for file in files)


def test_an_observer_that_the_user_names_is_left() -> None:
    twistd = Twistd(logger="mine")
    take_over_log(twistd, LogConfig())
    assert twistd["logger"] == "mine"


def test_servers_of_one_directory_have_pid_files_of_their_own() -> None:
    background, foreground = Twistd(pidfile="twistd.pid"), Twistd(pidfile="twistd.pid", nodaemon=1)
    choose_pid_file(background, 10911)
    choose_pid_file(foreground, 10911)
    assert (background["pidfile"], foreground["pidfile"]) == ("rmq-broker-10911.pid", "")


class Processes:
    """What the system tells of this process, whose number the file `b.pid` has."""

    def __init__(self, home: Path) -> None:
        self.path = home / "b.pid"
        self.path.write_text(f"{os.getpid()}")
        self._all = home / "proc"
        (self._all / f"{os.getpid()}").mkdir(parents=True)

    def run(self, *command: str) -> None:
        """Has the process be one with the command line `command`."""
        line = "".join(f"{word}\0" for word in command)
        (self._all / f"{os.getpid()}" / "cmdline").write_text(line)

    def start(self, **options: Any) -> None:
        choose_pid_file(Twistd(pidfile=str(self.path), **options), None, self._all)


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


def test_a_server_that_runs_is_named(processes: Processes) -> None:
    processes.run("/usr/bin/python3", "/usr/bin/twistd", "rmq-broker", "-c", "a.properties")
    with pytest.raises(SystemExit, match=f"b.pid: process {os.getpid()} runs already: stop it"):
        processes.start()
    assert processes.path.exists()


def test_a_process_that_the_system_does_not_tell_of_may_be_a_server(processes: Processes) -> None:
    with pytest.raises(SystemExit, match="runs already"):
        processes.start()


@pytest.mark.parametrize("command", [("-bash",), ("vim", "rmq-broker-10911.log"), ()])
def test_the_file_of_a_server_that_is_gone_is_removed(
    command: tuple[str, ...], processes: Processes
) -> None:
    """Behind a crash or a start of the machine another process has its number; the last one has
    ended, and nobody has taken notice."""
    processes.run(*command)
    with capturedLogs() as events:
        processes.start()
    assert not processes.path.exists()
    [line] = map(formatEvent, events)
    assert line.endswith(f"process {os.getpid()} is another program")


def test_a_file_that_is_no_number_is_left(processes: Processes) -> None:
    processes.path.write_text("no number")
    with pytest.raises(SystemExit, match=r"b\.pid: there is no process id in it: remove it, or "):
        processes.start()
    assert processes.path.read_text() == "no number"


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "b.pid"
    with pytest.raises(SystemExit, match=f"--pidfile {path}: its directory is not there: make it"):
        choose_pid_file(Twistd(pidfile=str(path)))
    with pytest.raises(SystemExit, match=f"--rundir {path}: there is no such directory"):
        choose_pid_file(Twistd(pidfile="", rundir=str(path)))
    # In another root they may be there.
    choose_pid_file(Twistd(pidfile=str(path), rundir=str(path), chroot=str(tmp_path)))


def test_a_pid_file_is_of_the_directory_where_twistd_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So twistd has it, whatever its --rundir is."""
    (tmp_path / "run").mkdir()
    (tmp_path / "pids").mkdir()
    monkeypatch.chdir(tmp_path)
    choose_pid_file(Twistd(pidfile="pids/b.pid", rundir="run"))
    (tmp_path / "pids" / "b.pid").write_text(f"{os.getpid()}")
    with pytest.raises(SystemExit, match="runs already"):
        choose_pid_file(Twistd(pidfile="pids/b.pid", rundir="run"), None, tmp_path / "none")


@pytest.mark.parametrize(("umask", "mode"), [(None, 0o640), (0o022, 0o640), (0o077, 0o600)])
def test_a_file_has_its_mode_from_the_start(tmp_path: Path, umask: int | None, mode: int) -> None:
    path = tmp_path / "server.log"
    twistd = Twistd(logfile=str(path), nodaemon=True, umask=umask)
    take_over_log(twistd, LogConfig())
    logs.make_observer()
    assert path.stat().st_mode & 0o777 == mode


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.touch()
    path.chmod(0o644)
    take_over_log(Twistd(logfile=str(path), nodaemon=True), LogConfig())
    logs.make_observer()
    assert path.stat().st_mode & 0o777 == 0o644


def test_servers_of_one_directory_have_logs_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for port in (9876, 9877):
        take_over_log(Twistd(), LogConfig(), port)
        logs.make_observer()(event(LogLevel.info, text=f"server {port}"))
    assert {file.name: "server 987" in file.read_text() for file in tmp_path.iterdir()} == {
        "rmq-broker-9876.log": True,
        "rmq-broker-9877.log": True,
    }


def test_servers_with_one_file_take_nothing_from_each_other(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    observers = []
    for _ in range(2):
        take_over_log(Twistd(logfile=str(path), nodaemon=True), LogConfig())
        observers.append(logs.make_observer())
    for number in range(6):
        observers[number % 2](event(LogLevel.info, text=f"line {number}"))
    assert [line.split()[-1] for line in path.read_text().splitlines()] == list("012345")


def test_a_file_that_is_cut_goes_on_at_its_start(tmp_path: Path) -> None:
    """As logrotate does it with copytruncate."""
    path = tmp_path / "server.log"
    twistd = Twistd(logfile=str(path), nodaemon=True)
    take_over_log(twistd, LogConfig(log_file_size=2000))
    observer = logs.make_observer()
    for _ in range(3):
        for number in range(20):
            observer(event(LogLevel.info, text=f"line {number}"))
        assert b"\0" not in path.read_bytes()
        assert path.read_text().count("line") == 20
        os.truncate(path, 0)
    # What was cut does not count in the size of the file.
    assert [file.name for file in tmp_path.iterdir()] == ["server.log"]


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_file_that_was_moved_or_removed_has_a_successor(is_removed: bool, tmp_path: Path) -> None:
    """As logrotate does it, which moves the file and sends a signal; also without one it begins
    where the file is full."""
    path = tmp_path / "server.log"
    take_over_log(Twistd(logfile=str(path), nodaemon=True), LogConfig(log_file_size=2000))
    observer = logs.make_observer()
    observer(event(LogLevel.info, text="first"))
    moved = path.rename(tmp_path / "moved.log")
    if is_removed:
        moved.unlink()
    for number in range(100):
        observer(event(LogLevel.info, text=f"line {number}"))
    assert "line 99" in path.read_text() and "first" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert is_removed or moved.read_text().startswith("1970-01-01T00:00:01+0000 [")


@pytest.fixture
def usr1() -> Iterator[Callable[[], Any]]:
    """Returns what SIGUSR1 does now; as by default in the beginning."""
    former = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    yield lambda: signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, former)


def test_a_moved_file_has_a_successor_on_the_signal(
    usr1: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.log"
    take_over_log(Twistd(logfile=str(path), nodaemon=True), LogConfig())
    observer = logs.make_observer()
    observer(event(LogLevel.info, text="first"))
    path.rename(tmp_path / "moved.log")
    monkeypatch.setattr("twisted.internet.reactor.callFromThread", lambda call: call())
    usr1()(signal.SIGUSR1, None)
    observer(event(LogLevel.info, text="second"))
    assert "second" in path.read_text() and "second" not in (tmp_path / "moved.log").read_text()


@pytest.mark.parametrize("options", [{"nodaemon": True}, {"syslog": True}])
def test_the_signal_kills_no_server_without_a_file(
    usr1: Callable[[], Any], options: dict[str, Any]
) -> None:
    take_over_log(Twistd(**options), LogConfig())
    logs.make_observer()
    assert usr1() is signal.SIG_IGN
