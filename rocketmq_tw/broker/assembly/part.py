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
from rocketmq_tw.metrics.instruments import Metric
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


class Part:
    """A capability without anything; a real one overrides what it has. Which hook is for what:

    ============  =================================  =============================================
    hook          called                             duty
    ============  =================================  =============================================
    constructor   once, behind the parts used        makes books; registers redirects, listeners,
                                                     `DerivedOffsets`; touches no file and no clock
    `start`       once, forwards; no role yet        opens files, reads what is no `KeptTable`
    `tables`      once, behind `start`               names tables: loaded here, saved at the end
    `periodic`    once, behind all of `start`        names work that comes again, for some roles
    `opened`      once, forwards; ports are open     looks for a role where none is configured
    `enter`       each role, forwards                prepares; nothing is served or appended yet
    `handlers`    each role, behind `enter`          says who answers which request in this role
    `ready`       each role, forwards                makes the object that does this role's work,
                                                     for as long as `RoleHolder.scope` lasts
    scope's end   each role, at once                 ends what would append or answer as that role
    `leave`       each role, backwards; ISOLATED     waits for what is under way, drops that object
    `stop`        once, backwards; tables are saved  releases what `start` took
    ============  =================================  =============================================

    Work that belongs to a role is such an object and keeps no flag that says which role it is: in
    the next role there is another object, or none.
    """

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
        """Yields the figures of it, as they are now."""
        return ()
