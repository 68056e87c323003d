"""Brokers in processes of their own, which the container starts, watches and starts again."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessDone, ProcessExitedAlready
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

import rocketmq_tw
from rocketmq_tw.config.base import Config
from rocketmq_tw.config.container import BrokerContainerConfig
from rocketmq_tw.config.schema import keys_of
from rocketmq_tw.config.values import format_value
from rocketmq_tw.container.interface import (
    BrokerIdentity,
    BrokerSetup,
    IBrokerHosting,
    IHostedBroker,
    StartFailed,
)
from rocketmq_tw.container.messages import (
    MAX_LINE,
    ORDERS,
    REPORTS,
    ChildReport,
    Orders,
    encode_line,
)
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.retries import GrowingPause
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.structs import msgspec

#: Seconds before a process that ended by itself is started again for the first time.
_FIRST_PAUSE = 1.0

#: Starts a process that serves a broker, with the protocol of its pipes.
Spawn = Callable[[ProcessProtocol, BrokerSetup], IProcessTransport]

log = Logger()


def spawn_with(reactor: Any) -> Spawn:
    """Returns a `Spawn` that starts `twistd rmq-broker` with this interpreter and this package. Its
    log goes where the container's own output does."""
    program = "from twisted.scripts.twistd import run; run()"
    home = os.path.dirname(os.path.dirname(os.path.abspath(rocketmq_tw.__file__)))

    def spawn(protocol: ProcessProtocol, setup: BrokerSetup) -> IProcessTransport:
        # -P: nothing in the directory that the container was started in is taken for a module.
        command = [sys.executable, "-P", "-c", program, "-n", "--pidfile=", "rmq-broker"]
        known = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([home, known] if known else [home])
        transport: IProcessTransport = reactor.spawnProcess(
            protocol,
            sys.executable,
            [*command, "--supervised", "-c", setup.path],
            env=os.environ | {"PYTHONPATH": path},
            childFDs={ORDERS: "w", 1: 1, 2: 2, REPORTS: "r"},
        )
        return transport

    return spawn


class BrokerRun(ProcessProtocol):
    """One run of a broker's process: passes on its reports, and its end."""

    transport: IProcessTransport

    def __init__(self, report: Callable[[ChildReport], None], ended: Callable[[str], None]) -> None:
        self._report = report
        self._ended = ended
        self._line = b""

    def order(self, orders: Orders) -> None:
        """Tells the process something, unless it was asked to stop or hears no more."""
        # Twisted has no pipe any more where the process has closed its end.
        with contextlib.suppress(KeyError):
            self.transport.writeToChild(ORDERS, encode_line(orders))

    def end(self) -> None:
        """Asks the process to stop cleanly."""
        with contextlib.suppress(KeyError):
            self.transport.closeChildFD(ORDERS)

    def kill(self) -> None:
        """Ends the process at once."""
        with contextlib.suppress(ProcessExitedAlready):
            self.transport.signalProcess("KILL")

    def childDataReceived(self, childFD: int, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > MAX_LINE:
            self.kill()
            return
        for line in lines:
            self._report(msgspec.json.decode(line, type=ChildReport))

    def processEnded(self, reason: Failure) -> None:
        status = "status 0" if reason.check(ProcessDone) else _status_of(reason.value)
        self._ended(status)


def _status_of(error: Any) -> str:
    return f"signal {error.signal}" if error.signal is not None else f"status {error.exitCode}"


@implementer(IHostedBroker)
class SupervisedBroker:
    """A broker whose process is started again whenever it ends by itself: after a second, then
    after twice as long each time, until it has served for as long as the longest pause."""

    def __init__(
        self,
        clock: Any,
        config: BrokerContainerConfig,
        setup: BrokerSetup,
        settings: dict[str, str],
        spawn: Spawn,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when the broker begins to serve, and when it does no more."""
        self.setup = setup
        #: It was stopped, and its process has ended.
        self.is_over = False
        #: Where it serves; None while it does not.
        self.address: str | None = None
        self._clock = clock
        self._config = config
        self._settings = settings
        self._spawn = spawn
        self._changed = changed
        self._run: BrokerRun | None = None
        self._starting: Deferred[None] | None = None
        self._why = ""
        self._is_stopping = False
        self._served_since = 0.0
        self._pause = GrowingPause(_FIRST_PAUSE, self._longest_pause)
        self._ended_for_good = Waiters[None]()
        self._again = Alarm(clock, self._begin)
        self._too_late = Alarm(clock, self._kill)

    def start(self) -> Deferred[None]:
        """Fires once the broker serves; fails with `StartFailed`, and it is not tried again."""
        self._starting = Deferred()
        starting = self._starting
        self._begin()
        return starting

    def give_up(self) -> None:
        """Ends a start that is under way; it fails then."""
        if self._starting is not None and self._run is not None:
            self._why = "it was removed while it started"
            self._end(self._run)

    def stop(self) -> Deferred[None]:
        self._is_stopping = True
        self._again.cancel()
        if self._run is None:
            self._over()
            return succeed(None)
        self._end(self._run)
        return self._ended_for_good.wait()

    def _end(self, run: BrokerRun) -> None:
        run.end()
        self._too_late.set(self._config.broker_stop_timeout_millis / 1000)

    def tell_masters(self, names: Sequence[str]) -> None:
        """Tells the process which masters the container has."""
        if self._run is not None and self.address is not None:
            self._run.order(Orders(masters=list(names)))

    def _begin(self) -> None:
        self._why = ""
        run = BrokerRun(self._take_report, self._ended)
        self._run = run
        try:
            self._spawn(run, self.setup)
        except OSError as error:
            self._why = f"no process can be started: {error.strerror}"
            self._ended("no process")
            return
        run.order(Orders(settings=self._settings))
        # Where the container is gone, nobody else ends a process that does not stop.
        run.order(Orders(stop_timeout_millis=self._config.broker_stop_timeout_millis))

    def _take_report(self, report: ChildReport) -> None:
        if report.failed is not None:
            self._why = report.failed
        elif report.serves is not None:
            self.address = report.serves
            self._served_since = self._clock.seconds()
            starting, self._starting = self._starting, None
            if starting is not None:
                starting.callback(None)
            self._changed()

    def _ended(self, status: str) -> None:
        self._run = None
        self._too_late.cancel()
        served, self.address = self.address is not None, None
        starting, self._starting = self._starting, None
        if starting is not None:
            why = self._why or f"its process ended with {status}, and its log says why"
            starting.errback(StartFailed(why))
            return
        if self._is_stopping:
            self._over()
            return
        if served:
            self._changed()
        # A live change counts from the next end on.
        self._pause.longest = longest = self._longest_pause
        if served and self._clock.seconds() - self._served_since >= longest:
            self._pause.worked()
        pause = self._pause.failed()
        log.error(
            "{broker} ended with {status}{why}: it is started again in {pause:g} s",
            broker=self.setup.identity.canonical_name,
            status=status,
            why=f" ({self._why})" if self._why else "",
            pause=pause,
        )
        self._again.set(pause)

    @property
    def _longest_pause(self) -> float:
        return self._config.max_broker_restart_pause_millis / 1000

    def _over(self) -> None:
        self.is_over = True
        self._ended_for_good.fire(None)
        self._changed()

    def _kill(self) -> None:
        if self._run is not None:
            log.error(
                "{broker} did not stop in time: it is killed",
                broker=self.setup.identity.canonical_name,
            )
            self._run.kill()


@implementer(IBrokerHosting)
class BrokersApart:
    """Starts each broker in a process of its own."""

    def __init__(
        self,
        clock: Any,
        config: BrokerContainerConfig,
        shared: Sequence[Config],
        spawn: Spawn,
    ) -> None:
        """`shared` are the container's configurations that its brokers have too."""
        self._clock = clock
        self._config = config
        self._shared = shared
        self._spawn = spawn
        self._brokers: list[SupervisedBroker] = []

    def start(self, setup: BrokerSetup) -> Deferred[Any]:
        broker = SupervisedBroker(
            self._clock,
            self._config,
            setup,
            child_settings(setup, self._shared),
            self._spawn,
            self._changed,
        )
        self._brokers.append(broker)

        def failed(failure: Failure) -> Failure:
            self._brokers.remove(broker)
            return failure

        return broker.start().addCallbacks(lambda _: broker, failed)

    def give_up(self, identity: BrokerIdentity) -> None:
        """See `IBrokerHosting`."""
        for broker in self._brokers:
            if broker.setup.identity == identity:
                broker.give_up()

    def _changed(self) -> None:
        self._brokers = [broker for broker in self._brokers if not broker.is_over]
        serving = [broker for broker in self._brokers if broker.address is not None]
        names = [broker.setup.config.broker_name for broker in serving if broker.setup.is_master]
        for broker in serving:
            broker.tell_masters(names)


def child_settings(setup: BrokerSetup, shared: Sequence[Config]) -> dict[str, str]:
    """Returns what a broker's process is told beside its file: what belonging to the container
    changes, and the keys of the configurations that it shares."""
    settings = {
        key.name: format_value(getattr(config, key.attribute))
        for config in shared
        for key in keys_of(type(config)).values()
    }
    return settings | {
        "namesrvAddr": setup.config.namesrv_addr,
        "brokerId": str(setup.config.broker_id),
        "listenPort": str(setup.listen_port),
        "haListenPort": str(setup.store_config.ha_listen_port),
    }
