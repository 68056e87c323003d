"""What a broker is made of: parts, one for each capability.

A part has its books, its requests, its files and its periodic work, and says so through this
interface. The arguments of its constructor are what it uses: other parts, or what the assembly is
given (`Host`, `RoleHolder`, `Addresses`). From these follows the order of everything: a part is
made and started after those that it uses, and stopped before them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.role.state import EVERY_ROLE, Role, RoleState
from rocketmq_tw.net.interfaces import Handler


class Periodic(NamedTuple):
    """Work that comes again: `seconds`, a number or what tells one, lie between two calls of
    `work`, and in other roles than `roles` it is left out. What `may_hang` on a peer is not waited
    for when the broker stops."""

    name: str
    seconds: float | Callable[[], float]
    work: Callable[[], Any]
    roles: Collection[Role] = EVERY_ROLE
    may_hang: bool = False


class KeptTable(NamedTuple):
    """A table with a file: `load` reads it at the start; `save` fires once all that the table has
    is in the file. It is called at the end and, where there are `seconds`, that often before."""

    name: str
    load: Callable[[], None]
    save: Callable[[], Deferred[Any]]
    seconds: float | None = None


class Metric(NamedTuple):
    """A figure by stock's name for it, with its labels."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


class Part:
    """A capability without anything; a real one overrides what it has."""

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        """Request code to handler, as it is in `role`."""
        return {}

    def tables(self) -> Iterable[KeptTable]:
        """The tables to load behind `start` and to save at the end."""
        return ()

    def periodic(self) -> Iterable[Periodic]:
        """The work to do from time to time, from the first role on."""
        return ()

    def start(self) -> Deferred[Any] | None:
        """Prepares; the parts that this one uses are prepared. Where it fails, nothing is stopped
        but what was started."""

    def opened(self) -> None:
        """Every part is started and the ports are open; a broker whose role is not configured
        looks for one from here on."""

    def enter(self, state: RoleState) -> Deferred[Any] | None:
        """Begins what the role wants, behind the parts that this one uses; nobody is served yet,
        and nothing is appended."""

    def ready(self, state: RoleState) -> None:
        """Every part is in the role, and requests are answered as the role wants it."""

    def leave(self, state: RoleState) -> Deferred[Any] | None:
        """Ends what the role wanted, before the parts that this one uses; fires once it is over.
        The role is ISOLATED by then."""

    def stop(self) -> Deferred[Any] | None:
        """Releases what `start` took; the role was left and the tables are saved."""

    def runtime_info(self) -> Mapping[str, str]:
        """What request 28 tells of it."""
        return {}

    def metrics(self) -> Iterable[Metric]:
        """Figures for whoever watches the broker."""
        return ()
