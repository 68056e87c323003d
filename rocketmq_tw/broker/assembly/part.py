"""Defines `Part`: a broker is made of parts, one for each capability.

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
from rocketmq_tw.net.interfaces import FrameHandler, Handler


class Periodic(NamedTuple):
    """Work that is done every `seconds`, a number or a callable that returns one, in `roles` only.
    A stop of the broker does not wait for work that `may_hang` on a peer."""

    name: str
    seconds: float | Callable[[], float]
    work: Callable[[], Any]
    roles: Collection[Role] = EVERY_ROLE
    may_hang: bool = False


class KeptTable(NamedTuple):
    """A table with a file: `load` reads it; `save` fires once the file has all that the table has.
    It is called when the broker stops and, where there are `seconds`, that often before."""

    name: str
    load: Callable[[], None]
    save: Callable[[], Deferred[Any]]
    seconds: float | None = None


class Part:
    """A capability of the broker. The methods do nothing here; a part overrides those it needs:

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
    `handlers`    each role, behind `enter`          says who answers which request in this role;
                                                     `frame_handlers` beside it
    `ready`       each role, forwards                makes the object that does this role's work,
                                                     for as long as `RoleHolder.scope` lasts
    `stopping`    once, backwards; still the role    lets others have what only this broker knows
    scope's end   each role, at once                 ends what would append or answer as that role
    `leave`       each role, backwards; it is over   waits for what is under way, drops that object
    `stop`        once, backwards; tables are saved  releases what `start` took
    ============  =================================  =============================================

    An acting master is a slave that does more: from SLAVE to ACTING_MASTER nothing is left, the
    parts enter the second role on top of the first; `leave` of it makes the broker a slave again.

    Work that belongs to a role is such an object and keeps no flag that says which role it is: in
    the next role there is another object, or none.
    """

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        """Returns request code -> handler for `role`."""
        return {}

    def frame_handlers(self, role: Role) -> Mapping[int, FrameHandler]:
        """Returns the frame handlers of codes that `handlers` has for `role` too; they are dropped
        with the role."""
        return {}

    def tables(self) -> Iterable[KeptTable]:
        """Returns the tables to load behind `start` and to save when the broker stops."""
        return ()

    def periodic(self) -> Iterable[Periodic]:
        """Returns the work to do again and again once the ports are open."""
        return ()

    def start(self) -> Deferred[Any] | None:
        """Prepares, behind the parts that this one uses. Where it fails, the broker does not start,
        and only the parts that were started are stopped, this one among them."""

    def opened(self) -> None:
        """Goes on when all parts are started and the ports are open: a broker whose role is not
        configured looks for one."""

    def enter(self, state: RoleState) -> Deferred[Any] | None:
        """Prepares for a role, behind the parts that this one uses; no request is served yet, and
        nothing may be appended. Where it fails, the role is left again."""

    def ready(self, state: RoleState) -> None:
        """Begins the work of a role: every part has entered it, and requests are answered."""

    def stopping(self) -> Deferred[Any] | None:
        """Does what has to be done before a broker with a role stops, while it still serves; fires
        within some seconds, whatever others do."""

    def leave(self, state: RoleState) -> Deferred[Any] | None:
        """Ends the work of the role `state`, before the parts that this one uses; fires once it is
        over. The broker's role is ISOLATED by then, or SLAVE where `state` is ACTING_MASTER."""

    def stop(self) -> Deferred[Any] | None:
        """Releases what `start` took; the role is left and the tables are saved by then."""

    def runtime_info(self) -> Mapping[str, str]:
        """Returns its share of the runtime info (request 28)."""
        return {}

    def metrics(self) -> Iterable[Metric]:
        """Yields the figures of it, as they are now."""
        return ()
