"""Runs the work of a command: finds the name servers, shows results, runs the reactor once, and
turns whatever goes wrong into one clear line."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs
import click
from click.exceptions import Exit

from rocketmq_tw.admin.light_imports import tls_left_out
from rocketmq_tw.admin.output import Report, StatusLine, is_terminal, plain, show
from rocketmq_tw.admin.settings import Access, Settings
from rocketmq_tw.admin.settings import read as read_contexts
from rocketmq_tw.interrupted import INTERRUPTED

# Help, completion and wrong calls wait for no client, and each command for its own ones alone.
if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from rocketmq_tw.client.admin import AdminClient
    from rocketmq_tw.client.admin.container import ContainerClient
    from rocketmq_tw.client.controller import ControllerClient
    from rocketmq_tw.client.producer import Producer
    from rocketmq_tw.client.pull import QueuePuller
    from rocketmq_tw.client.session import Session
    from rocketmq_tw.net.interfaces import IRemotingClient

T = TypeVar("T")

#: Seconds within which a leader is to be found.
CONTROLLER_TIMEOUT = 5.0

#: What a command does once its options are right.
Work = Callable[["Servers"], Coroutine["Deferred[Any]", Any, T]]
#: Runs the work with the name servers at the addresses, and speaks to servers as `Access` says.
Runner = Callable[[str, Work[Any], Access], Any]


class Servers:
    """The clients of one command; they share their connections."""

    def __init__(self, reactor: Any, name_servers: str, remoting: IRemotingClient) -> None:
        self.reactor = reactor
        self.name_servers = name_servers
        self.remoting = remoting
        #: Address to the failure of each server whose part is missing in what was found.
        self.missing: dict[str, Exception] = {}
        #: How far the work is, where that takes long; it is gone when the work ends.
        self.status = StatusLine()
        #: Whether servers that do not answer are passed over without a word.
        self.is_quiet = False

    def miss(self, address: str, error: Exception) -> None:
        """Takes it that a server's part is missing: tells of it in a line on stderr, once, and has
        the command end with status 1 once it has shown what the others say."""
        if address not in self.missing and not self.is_quiet:
            self.missing[address] = error
            self.status.clear()
            warn(explain_at(address, error))

    def conclusion(self, text: str) -> str:
        """Returns what follows from all that servers said, as that there is no such group: with the
        servers in front whose part is missing, since they may know better."""
        if not self.missing:
            return text
        return f"without {', '.join(self.missing)}, which may know more: {text}"

    @cached_property
    def admin(self) -> AdminClient:
        """Asks name servers and brokers."""
        from rocketmq_tw.client.admin import AdminClient

        return AdminClient(self.reactor, self.name_servers, remoting=self.remoting)

    def controllers(self, addresses: str) -> ControllerClient:
        """Returns a client that asks the controllers at `addresses`, or their leader."""
        from rocketmq_tw.client.controller import ControllerClient

        return ControllerClient(
            self.reactor, self.remoting, addresses, leader_timeout=CONTROLLER_TIMEOUT
        )

    def container(self, address: str) -> ContainerClient:
        """Returns a client that asks the broker container at `address`."""
        from rocketmq_tw.client.admin.container import ContainerClient

        return ContainerClient(self.remoting, address)

    def producer(self, group: str) -> Producer:
        """Makes a producer that is not started: it sends, and no broker counts it among its
        producers."""
        from rocketmq_tw.client.producer import Producer
        from rocketmq_tw.client.settings import ProducerSettings

        return Producer(
            self.reactor,
            self.name_servers,
            group,
            session=self._session(),
            settings=ProducerSettings(first_queue=random.randrange(1 << 16)),
        )

    def reader(self, group: str) -> QueuePuller:
        """Makes a puller that reads in the name of `group` without joining it, so it takes no
        queues from members."""
        from rocketmq_tw.client.pull import QueuePuller

        return QueuePuller(self._session(), group)

    def _session(self) -> Session:
        from rocketmq_tw.client.session import Session

        return Session(self.reactor, self.name_servers, remoting=self.remoting)


def run_reactor(name_servers: str, work: Work[T], access: Access) -> T:
    """Returns the result of `work`, with the reactor running meanwhile; once in a process."""
    with tls_left_out(of_twisted=access.tls is None):
        import_module("twisted.internet.reactor")
        from twisted.internet.defer import Deferred
        from twisted.internet.task import react
        from twisted.python.failure import Failure

        from rocketmq_tw.net.client import RemotingClient

    outcome: list[Any] = []
    was_stopped = False
    working: Deferred[Any]

    def stopped() -> None:
        nonlocal was_stopped
        was_stopped = not outcome
        if was_stopped:
            # Before its connections end, which it would tell as failures.
            working.cancel()

    async def connected(reactor: Any) -> T:
        credentials = access.credentials
        signing = () if credentials is None else (lambda request, _: credentials.sign(request),)
        remoting = RemotingClient(reactor, tls=access.tls, before_send=signing)
        try:
            return await work(Servers(reactor, name_servers, remoting))
        finally:
            await remoting.close()

    def main(reactor: Any) -> Deferred[Any]:
        nonlocal working
        reactor.addSystemEventTrigger("before", "shutdown", stopped)
        working = Deferred.fromCoroutine(connected(reactor))
        return working.addBoth(outcome.append)

    # The status that it exits with knows nothing of the outcome.
    with suppress(SystemExit):
        react(main)
    if was_stopped or not outcome:
        raise SystemExit(INTERRUPTED)
    if isinstance(outcome[0], Failure):
        outcome[0].raiseException()
    result: T = outcome[0]
    return result


class Tool:
    """One call of rmqadmin; click hands it from the group to the command."""

    def __init__(self, runner: Runner = run_reactor) -> None:
        self.given = Settings()
        self.environment = Settings()
        #: The name of the context that is to be taken, where one is named.
        self.context: str | None = None
        self.dry_run = False
        #: Seconds between two looks; None for one look.
        self.watch: int | None = None
        self._runner = runner
        self._is_partial = False

    @cached_property
    def settings(self) -> Settings:
        """The settings that count: what is given, then the named context, the environment, the
        current context."""
        if self.context is not None:
            named = read_contexts().named(self.context)
            return self.given.over(named).over(self.environment)
        known = self.given.over(self.environment)
        if known.name_servers is not None:
            return known
        return known.over(read_contexts().current_one())

    def only_once(self, what: str) -> None:
        """Raises `UsageError` where a look is to be repeated, for a command that takes none: `what`
        says what it does."""
        if self.watch is not None:
            raise click.UsageError(f"--watch is for commands that only look: this one {what}")

    def run(self, work: Work[T], *, needs_names: bool = True) -> T:
        """Returns the result of `work`. Raises `ClickException` with one line that says what went
        wrong, and `Exit` where a server's part is missing, which was told."""
        if self.watch is not None:
            raise click.UsageError("--watch: this command goes on by itself, see its own options")
        result = self._run(self._planned(work) if self.dry_run else work, needs_names)
        self._end()
        return result

    def _end(self) -> None:
        if self._is_partial:
            raise Exit(1)

    def _run(self, work: Work[T], needs_names: bool) -> T:
        names = self.settings.name_servers or ""
        if needs_names:
            _check_names(names)
        from rocketmq_tw.client.errors import ClientError, NoRouteError
        from rocketmq_tw.net.errors import RemotingError, TlsConfigError
        from rocketmq_tw.wire.errors import RequestError, WireError

        async def noting(servers: Servers) -> T:
            if unused is not None:
                # Not before: a file that cannot be read has ended the command.
                warn(unused)
            with servers.status:
                found = await work(servers)
            self._is_partial = bool(servers.missing)
            return found

        access = self.settings.access()
        unused = None if access.tls is None else access.tls.unused_by_client
        try:
            result: T = self._runner(names, _telling_kinds(noting), access)
        except NoRouteError as error:
            others = f"(name servers: {names}; -n names others)"
            fail(f"{explain(error)} {others}", error)
        except RequestError as error:
            fail(error.remark, error)
        except (ClientError, RemotingError, WireError, TlsConfigError) as error:
            fail(explain(error), error)
        return result

    @cached_property
    def _form(self) -> str | None:
        """The form of output that is wanted, None for the default. What has asked no server needs
        the contexts for nothing else: a wrong one does not end it."""
        if self.given.output is not None:
            return self.given.output
        try:
            return self.settings.output
        except click.UsageError as error:
            warn(error.message)
            return None

    def show(self, report: Report) -> None:
        """Prints a report in the form that is wanted."""
        show(report, self._form)

    def report(self, work: Work[Report], *, needs_names: bool = True) -> None:
        """Runs `work` and shows what it found, again and again where that is wanted; a plan once.
        Raises as `run`."""
        work = concluding(work)
        if self.watch is None or self.dry_run:
            self.show(self._run(self._planned(work) if self.dry_run else work, needs_names))
            self._end()
            return
        from rocketmq_tw.admin.planning import OnlyLooks
        from rocketmq_tw.admin.repeating import look_again

        interval = self.watch

        def show_alone(report: Report) -> None:
            if is_terminal(sys.stdout):
                click.clear()
            self.show(report)

        async def again(servers: Servers) -> None:
            servers.remoting = OnlyLooks(servers.remoting)
            await look_again(servers, work, show_alone, interval)

        self._run(again, needs_names)

    def _planned(self, work: Work[T]) -> Work[T]:
        """Makes work that shows what it would change, and ends the command then."""
        from rocketmq_tw.admin.planning import PlannedChanges, Unanswered

        async def planned(servers: Servers) -> T:
            plan = PlannedChanges(servers.remoting)
            servers.remoting = plan
            try:
                with servers.status:
                    result = await work(servers)
            except Unanswered:
                self.show(plan.report())
                raise Exit(int(bool(servers.missing))) from None
            if plan.requests:
                self.show(plan.report())
                raise Exit(int(bool(servers.missing)))
            return result

        return planned


def _check_names(names: str) -> None:
    if not names.strip():
        raise click.UsageError(
            "no name server is given: add -n host:port or set NAMESRV_ADDR, several with ';'"
            " between them, or make a context with rmqadmin context add"
        )
    from rocketmq_tw.net.address import name_server_addresses

    try:
        name_server_addresses(names)
    except ValueError as error:
        raise click.UsageError(f"-n: {error}") from error


def _telling_kinds(work: Work[T]) -> Work[T]:
    """Makes work to which a server of another kind than is meant says what it is."""

    async def telling(servers: Servers) -> T:
        from rocketmq_tw.admin.server_kinds import TellsKinds

        servers.remoting = TellsKinds(servers.remoting)
        return await work(servers)

    return telling


def concluding(work: Work[Report]) -> Work[Report]:
    """Makes work that where it finds nothing says whose part is missing."""

    async def concluded(servers: Servers) -> Report:
        report = await work(servers)
        return attrs.evolve(report, nothing=servers.conclusion(report.nothing))

    return concluded


def explain(error: Exception) -> str:
    """Says what went wrong, to stand before a `;` or at the end."""
    return str(error).rstrip(".")


def explain_at(address: str, error: Exception) -> str:
    """Says which server went wrong, and how."""
    reason = explain(error)
    # What is wrong with an answer is told without a place.
    return reason if address in reason else f"{address}: {reason}"


def fail(message: str, cause: Exception | None = None) -> NoReturn:
    """Ends the command with status 1 and a line on stderr."""
    raise click.ClickException(message) from cause


def warn(message: str) -> None:
    """Prints a line on stderr; the command goes on."""
    click.echo(f"rmqadmin: {plain(' '.join(message.split()))}", err=True)
