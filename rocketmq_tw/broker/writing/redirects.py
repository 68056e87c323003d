"""What makes a message special: a table of redirects that features register.

A redirect takes a message on its way into the log and changes in place where it goes, and what it
says of itself. Sends, messages that consumers give back and replies all ask the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum

from rocketmq_tw.message.model import StoredMessage

#: (message, its properties) -> whether it took the message; then no later stage is asked. It may
#: change both in place, must keep `message.properties` the properties' bytes, and may raise
#: `RequestError`.
PropertyRedirect = Callable[[StoredMessage, dict[str, str]], bool]
#: (message, its properties, how often the sender lets it be consumed again, or None). It may
#: change topic and queue of the message, and the properties, in place; raises `RequestError`.
TopicRedirect = Callable[[StoredMessage, dict[str, str], "int | None"], None]


#: The properties that make a message special, and who is asked then.
_ByProperty = tuple[frozenset[str], PropertyRedirect]


class Stage(IntEnum):
    """The order in which redirects by property are asked; REJECTION is for what the configuration
    forbids, whoever could take it."""

    REJECTION = 0
    POP_CHECK_POINT = 1
    TRANSACTION = 2
    DELAY_LEVEL = 3
    TIMER = 4
    ESCAPE = 5


class Redirects:
    """The table. `refusals` stand in for stages whose feature is not there: a message that wants
    one must not be stored as if it did not."""

    def __init__(
        self, refusals: Mapping[Stage, tuple[Collection[str], PropertyRedirect]] | None = None
    ) -> None:
        self._refusals = {
            stage: (frozenset(properties), refuse)
            for stage, (properties, refuse) in (refusals or {}).items()
        }
        self._stages: dict[Stage, _ByProperty] = {}
        self._topics: dict[str, TopicRedirect] = {}
        self._by_stage: list[_ByProperty] = []
        #: A message that has none of these properties is not special.
        self.properties: frozenset[str] = frozenset()
        #: Nor one whose topic begins with none of these.
        self.prefixes: tuple[str, ...] = ()
        self._order()

    def by_property(
        self, stage: Stage, properties: Collection[str], redirect: PropertyRedirect
    ) -> Callable[[], None]:
        """Asks `redirect` about messages that have one of `properties`; what is returned ends
        that. Raises `ValueError` where the stage has a redirect already."""
        if stage in self._stages:
            raise ValueError(f"there is a redirect for {stage.name} already")
        registered = self._stages[stage] = (frozenset(properties), redirect)
        self._order()

        def unregister() -> None:
            if self._stages.get(stage) is registered:
                del self._stages[stage]
                self._order()

        return unregister

    def by_topic(self, prefix: str, redirect: TopicRedirect) -> Callable[[], None]:
        """Asks `redirect` about messages whose topic begins with `prefix`; what is returned ends
        that. Raises `ValueError` where the prefix has a redirect already."""
        if prefix in self._topics:
            raise ValueError(f"there is a redirect for {prefix} already")
        self._topics[prefix] = redirect
        self._order()

        def unregister() -> None:
            if self._topics.get(prefix) is redirect:
                del self._topics[prefix]
                self._order()

        return unregister

    def route_by_topic(
        self, message: StoredMessage, properties: dict[str, str], retry_limit: int | None
    ) -> None:
        """To be called before the broker adds its own properties."""
        for prefix, redirect in self._topics.items():
            if message.topic.startswith(prefix):
                redirect(message, properties, retry_limit)
                return

    def route_by_property(self, message: StoredMessage, properties: dict[str, str]) -> None:
        """To be called last, with `message.properties` the bytes of `properties`."""
        for names, redirect in self._by_stage:
            if not names.isdisjoint(properties) and redirect(message, properties):
                return

    def _order(self) -> None:
        stages = self._refusals | self._stages
        self._by_stage = [stages[stage] for stage in sorted(stages)]
        self.properties = frozenset().union(*(names for names, _ in stages.values()))
        self.prefixes = tuple(self._topics)
