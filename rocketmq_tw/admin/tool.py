"""What all commands share: where the name servers are, how results are shown, one run of the
reactor, and one clear line for whatever goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from typing import Any, NoReturn, TypeVar

import rich_click as click
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from rocketmq_tw.admin.output import Report, plain, show_json, show_tables
from rocketmq_tw.client.admin import AdminClient
from rocketmq_tw.client.admin.container import ContainerClient
from rocketmq_tw.client.controller import ControllerClient
from rocketmq_tw.client.errors import BrokerError, ClientError, NoRouteError
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.pull import QueuePuller
from rocketmq_tw.client.session import Session
from rocketmq_tw.client.settings import ProducerSettings
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.net.address import name_server_addresses
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.net.tls_contexts import TlsConfigError
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError, WireError

T = TypeVar("T")

INTERRUPTED = 130
#: Seconds within which a leader is to be found.
CONTROLLER_TIMEOUT = 5.0

#: What a command does once its options are right.
Work = Callable[["Servers"], Coroutine[Deferred[Any], Any, T]]
#: Runs the work with the name servers at the addresses, over TLS where that is given.
Runner = Callable[[str, Work[Any], TlsConfig | None], Any]


class Servers:
    """The clients of one command; they share their connections."""

    def __init__(self, reactor: Any, name_servers: str, remoting: IRemotingClient) -> None:
        self.reactor = reactor
        self.name_servers = name_servers
        self.remoting = remoting

    @cached_property
    def admin(self) -> AdminClient:
        """Asks name servers and brokers."""
        return AdminClient(self.reactor, self.name_servers, remoting=self.remoting)

    def controllers(self, addresses: str) -> ControllerClient:
        """Returns a client that asks the controllers at `addresses`, or their leader."""
        return ControllerClient(
            self.reactor, self.remoting, addresses, leader_timeout=CONTROLLER_TIMEOUT
        )

    def container(self, address: str) -> ContainerClient:
        """Returns a client that asks the broker container at `address`."""
        return ContainerClient(self.remoting, address)

    def producer(self, group: str) -> Producer:
        """Makes a producer that is not started: it sends, and no broker counts it among its
        producers."""
        return Producer(
            self.reactor,
            self.name_servers,
            group,
            session=self._session(),
            settings=ProducerSettings(first_turn=random.randrange(1 << 16)),
        )

    def reader(self, group: str) -> QueuePuller:
        """Makes a puller that reads in the name of `group` without joining it, so it takes no
        queues from members."""
        return QueuePuller(self._session(), group)

    def _session(self) -> Session:
        return Session(self.reactor, self.name_servers, remoting=self.remoting)


def run_reactor(name_servers: str, work: Work[T], tls: TlsConfig | None) -> T:
    """Returns the result of `work`, with the reactor running meanwhile; once in a process."""
    outcome: list[Any] = []

    async def connected(reactor: Any) -> T:
        remoting = RemotingClient(reactor, tls=tls)
        try:
            return await work(Servers(reactor, name_servers, remoting))
        finally:
            await remoting.close()

    def main(reactor: Any) -> Deferred[Any]:
        return Deferred.fromCoroutine(connected(reactor)).addBoth(outcome.append)

    # The status that it exits with knows nothing of the outcome.
    with suppress(SystemExit):
        react(main)
    if not outcome:
        raise SystemExit(INTERRUPTED)
    if hasattr(outcome[0], "raiseException"):
        outcome[0].raiseException()
    result: T = outcome[0]
    return result


class Tool:
    """One call of rmqadmin; click hands it from the group to the command."""

    def __init__(self, runner: Runner = run_reactor) -> None:
        self.name_servers = ""
        self.json = False
        self.tls: TlsConfig | None = None
        self._runner = runner

    def run(self, work: Work[T], *, needs_names: bool = True) -> T:
        """Returns the result of `work`. Raises `ClickException` with one line that says what went
        wrong."""
        if needs_names:
            self._check_names()
        try:
            result: T = self._runner(self.name_servers, work, self.tls)
        except NoRouteError as error:
            others = f"(name servers: {self.name_servers}; -n names others)"
            fail(f"{explain(error)} {others}", error)
        except RequestError as error:
            fail(error.remark, error)
        except (ClientError, RemotingError, WireError, TlsConfigError) as error:
            fail(explain(error), error)
        return result

    def _check_names(self) -> None:
        if not self.name_servers.strip():
            raise click.UsageError(
                "no name server is given: add -n host:port or set NAMESRV_ADDR,"
                " several with ';' between them"
            )
        try:
            name_server_addresses(self.name_servers)
        except ValueError as error:
            raise click.UsageError(f"-n: {error}") from error

    def show(self, report: Report) -> None:
        if self.json:
            show_json(report)
        else:
            show_tables(report)

    def report(self, work: Work[Report], *, needs_names: bool = True) -> None:
        """Runs `work` and shows what it found."""
        self.show(self.run(work, needs_names=needs_names))


def explain(error: Exception) -> str:
    """Says what went wrong, to stand before a `;` or at the end. Where a server does not know the
    request, it may be a server of another kind."""
    reason = str(error).rstrip(".")
    if isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return f"{reason}: -n names name servers, -b a broker"
    return reason


def fail(message: str, cause: Exception | None = None) -> NoReturn:
    """Ends the command with status 1 and a line on stderr."""
    raise click.ClickException(message) from cause


def warn(message: str) -> None:
    """Prints a line on stderr; the command goes on."""
    click.echo(f"rmqadmin: {plain(' '.join(message.split()))}", err=True)
