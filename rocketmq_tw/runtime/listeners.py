"""Callables that are called whenever something happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVarTuple

from twisted.logger import Logger

Args = TypeVarTuple("Args")


class Listeners(Generic[*Args]):
    """Callables that are told of each event, in the order in which they were added.

    What one of them raises is logged with `event`, the words for what happened, and the others are
    told all the same. One that is added or removed meanwhile counts from the next event on.
    """

    __slots__ = ("_by_key", "_event", "_listeners")

    log = Logger()

    def __init__(self, event: str) -> None:
        self._event = event
        # Keys, since the same callable may be added twice.
        self._by_key: dict[object, Callable[[*Args], object]] = {}
        #: Those to tell; made when there is something to tell, since many may come and go.
        self._listeners: tuple[Callable[[*Args], object], ...] | None = ()

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, listener: Callable[[*Args], object]) -> Callable[[], None]:
        """Tells `listener` of each event from now on; what is returned ends that, and does nothing
        when it is called again."""
        key = object()
        self._by_key[key] = listener
        self._listeners = None

        def remove() -> None:
            if self._by_key.pop(key, None) is not None:
                self._listeners = None

        return remove

    def clear(self) -> None:
        """Removes all listeners."""
        self._by_key.clear()
        self._listeners = ()

    def tell(self, *args: *Args) -> None:
        """Calls every listener with these arguments."""
        if self._listeners is None:
            self._listeners = tuple(self._by_key.values())
        for listener in self._listeners:
            try:
                listener(*args)
            except Exception:
                self.log.failure("a listener failed when {event}", event=self._event)
