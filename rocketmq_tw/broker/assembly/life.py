"""The life of a broker's parts: start, change of role, stop. Follows the order of the assembly:
forwards where something begins, backwards where it ends."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredList, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.assembly import Assembly
from rocketmq_tw.broker.assembly.handlers import merge_handlers
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import TRANSITIONS, Role, RoleState
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.store.errors import StoreError

Steps = Generator[Any, Any, None]

log = Logger()


class Life:
    """Starts the parts of one assembly, leads them from role to role, and stops them.

    The first role is ISOLATED. Once `start` has fired, `change` may be called at any time; each
    change is over before the next one begins.
    """

    def __init__(self, host: Host, parts: Assembly, holder: RoleHolder) -> None:
        self._host = host
        self._logger = host.named(log)
        self._parts = parts
        self._holder = holder
        self._changes = Serial()
        self._started: list[Part] = []
        self._loaded: list[KeptTable] = []
        self._is_started = False
        #: Whether a change of role is news: not before the broker has said how it begins.
        self.tells_roles = False
        self._stopped = False
        self._periodic: list[PeriodicCall] = []

    @inlineCallbacks
    def start(self) -> Steps:
        """Starts the parts and loads their tables; fails with the first failure, without starting
        the rest."""
        for part in self._parts:
            # Also one whose start fails half-way has something to release.
            self._started.append(part)
            yield part.start()
            for table in part.tables():
                table.load()
                self._loaded.append(table)
                if table.seconds is not None:
                    self._add_periodic(Periodic(f"writing {table.name}", table.seconds, table.save))
        for part in self._parts:
            for task in part.periodic():
                self._add_periodic(task)
        self._serve()
        self._is_started = True

    def opened(self) -> None:
        """Begins periodic work and tells the parts that the ports are open: those that ask others
        for the broker's role begin with that."""
        for call in self._periodic:
            call.start()
        for part in self._parts:
            part.opened()

    def change(self, state: RoleState) -> Deferred[None]:
        """Leads all parts from the present role into `state.role`; fires once requests are
        answered as that role wants. Fails with `ValueError` for a role that cannot follow, changing
        nothing, or with the failure of a part; then the broker is isolated, or a slave where it was
        to act for its master. Every part leaves its role also where another one fails to, as with a
        log that cannot be made durable."""
        return self._changes.run(self._change, state)

    @inlineCallbacks
    def _change(self, state: RoleState) -> Steps:
        if self._stopped:
            return
        if not self._is_started:
            raise ValueError("a broker that is not started has no role to change")
        failures: list[Exception] = []
        if state == self._as_slave():
            yield from self._leave(failures)
        elif state.role is not Role.ACTING_MASTER:
            self._check(Role.ISOLATED, state.role)
            yield from self._isolate(failures)
        else:
            self._check(self._holder.role, state.role)
        if failures:
            raise failures[0]
        if state.role is self._holder.role:
            return
        self._holder.change(state)
        try:
            for part in self._parts:
                yield part.enter(state)
        except Exception:
            # Half a role is none: what was begun ends, and another change may follow.
            yield from self._leave([])
            raise
        self._serve()
        say = self._logger.info if self.tells_roles else self._logger.debug
        say(
            "the broker is {role} now, its id is {id}",
            role=state.role.value,
            id=state.broker_id,
        )
        for part in self._parts:
            part.ready(state)

    @inlineCallbacks
    def stop(self) -> Steps:
        """Stops in the order that loses nothing: lets slaves copy the tables, takes no new
        requests, leaves the role (which makes the log durable and answers held requests), saves the
        tables, releases everything.

        A step that fails is logged, and the others are done all the same; then `stop` fails with
        the first failure.
        """
        failures: list[Exception] = []
        if self._holder.role is not Role.ISOLATED:
            for part in reversed(self._parts):
                name = f"{type(part).__name__} before its stop"
                yield from self._attempt(name, part.stopping, failures)
        # A start that is under way finds none to begin.
        calls, self._periodic = self._periodic, []
        periodic_stopped = DeferredList([call.stop() for call in calls])
        served = self._host.listener.stop()
        yield self._changes.run(self._end_changes)
        yield from self._isolate(failures)
        steps: list[tuple[str, Callable[[], Any]]] = [
            ("closing connections", lambda: served),
            ("ending periodic tasks", lambda: periodic_stopped),
        ]
        steps += [(f"writing {table.name}", table.save) for table in self._loaded]
        steps += [(f"stopping {type(part).__name__}", part.stop) for part in self._started[::-1]]
        for name, step in steps:
            yield from self._attempt(name, step, failures)
        if failures:
            raise failures[0]

    @staticmethod
    def _check(former: Role, wanted: Role) -> None:
        if wanted not in TRANSITIONS[former] | {Role.ISOLATED}:
            raise ValueError(f"a broker that is {former.value} cannot be {wanted.value}")

    def _as_slave(self) -> RoleState | None:
        """Returns what an acting master is when it acts no more; None for other brokers."""
        state = self._holder.state
        acts = state.role is Role.ACTING_MASTER
        return attrs.evolve(state, role=Role.SLAVE) if acts else None

    def _end_changes(self) -> None:
        self._stopped = True

    def _isolate(self, failures: list[Exception]) -> Steps:
        while self._holder.role is not Role.ISOLATED:
            yield from self._leave(failures)

    def _leave(self, failures: list[Exception]) -> Steps:
        """Leaves the present role; an acting master is a slave then, others are isolated."""
        state = self._holder.state
        self._holder.change(self._as_slave() or RoleState(Role.ISOLATED, state.broker_id))
        self._serve()
        for part in reversed(self._parts):
            yield from self._attempt(
                f"{type(part).__name__} as {state.role.value}",
                lambda part=part: part.leave(state),  # type: ignore[misc]
                failures,
            )

    def _attempt(self, name: str, step: Callable[[], Any], failures: list[Exception]) -> Steps:
        try:
            yield step()
        except Exception as error:
            what = f"{name} failed while the role or the broker ended"
            if isinstance(error, (OSError, StoreError)):
                self._logger.error("{what}: {why}", what=what, why=error)
            else:
                self._logger.failure("{what}", what=what)
            failures.append(error)

    def _serve(self) -> None:
        """Has requests answered as the present role wants."""
        role = self._holder.role
        self._host.listener.serve(
            merge_handlers(part.handlers(role) for part in self._parts),
            merge_handlers(part.frame_handlers(role) for part in self._parts),
        )

    def _add_periodic(self, task: Periodic) -> None:
        def work() -> Any:
            return task.work() if self._holder.role in task.roles else None

        self._periodic.append(
            PeriodicCall(self._host.reactor, task.name, task.seconds, work, may_hang=task.may_hang)
        )
