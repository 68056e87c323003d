"""The table of redirects, which features register for what makes a message special.

A message on its way into the log is a `Draft`: the message, and beside it its properties, parsed
once. A redirect changes in place where the message goes and what its properties say. Sends,
batches, messages that consumers give back, replies, recalls and committed half messages all ask the
same table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import IntEnum

from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


class Draft(msgspec.Struct, gc=False):
    """A message before it is appended. What it asks for stands in its properties
    (docs/formats/message.md)."""

    message: StoredMessage
    #: What the message's properties will say; `write_properties` makes their bytes.
    properties: dict[str, str]
    #: How often its sender lets it be consumed again; None: as often as its group says.
    retry_limit: int | None = None
    #: The body is a batch; then the properties hold for all its messages.
    is_batch: bool = False

    @property
    def delay_level(self) -> int:
        """The delay level that it asks for, 0 for none; raises `RequestError` (MESSAGE_ILLEGAL)
        where that is no number."""
        text = self.properties.get(props.DELAY)
        if text is None:
            return 0
        try:
            return int(text)
        except ValueError:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the property {props.DELAY}={text!r} is no level: give a number",
            ) from None

    @property
    def wants_transaction(self) -> bool:
        """Whether it asks to be a half message. One that is given back and waits for its next try
        is none any more, and a batch never is one; raises as `delay_level` does."""
        return (
            props.is_true(self.properties.get(props.TRAN_MSG))
            and not self.is_batch
            and not (self.message.reconsume_times > 0 and self.delay_level > 0)
        )

    @property
    def wants_timer(self) -> bool:
        """Whether it asks for a time of its own instead of a level, and has not waited for it
        yet."""
        properties = self.properties
        return props.TIMER_OUT_MS not in properties and any(
            name in properties for name in props.TIMER_PROPERTIES
        )

    def write_properties(self) -> None:
        """Makes the message's bytes of what `properties` say now."""
        self.message.properties = join_properties(self.properties)
        self.message.parsed = None


#: Whether it took the message; then no later stage is asked. It may change message and properties
#: in place, leaves `message.properties` to `Draft.write_properties`, and may raise `RequestError`.
PropertyRedirect = Callable[[Draft], bool]
#: It may change topic and queue of the message, and the properties, in place; raises
#: `RequestError`.
TopicRedirect = Callable[[Draft], None]

#: The properties that make a message special, and the redirect that is asked then.
_ByProperty = tuple[frozenset[str], PropertyRedirect]


class Stage(IntEnum):
    """The order in which redirects by property are asked; REJECTION is for what the configuration
    forbids, even where a later stage could take it."""

    REJECTION = 0
    TRANSACTION = 1
    DELAY_LEVEL = 2
    TIMER = 3


class Redirects:
    """Knows which messages are special, and leads each of them where its redirect says."""

    def __init__(self) -> None:
        self._stages: dict[Stage, _ByProperty] = {}
        self._topics: dict[str, TopicRedirect] = {}
        self._by_stage: list[_ByProperty] = []
        #: A message that has none of these properties is not special.
        self.properties: frozenset[str] = frozenset()
        #: Nor one whose topic begins with none of these.
        self.prefixes: tuple[str, ...] = ()

    def by_property(
        self, stage: Stage, properties: Collection[str], redirect: PropertyRedirect
    ) -> None:
        """Asks `redirect` about messages that have one of `properties`. Raises `ValueError` where
        the stage has a redirect already."""
        if stage in self._stages:
            raise ValueError(f"there is a redirect for {stage.name} already")
        self._stages[stage] = (frozenset(properties), redirect)
        self._by_stage = [self._stages[each] for each in sorted(self._stages)]
        self.properties = self.properties.union(properties)

    def by_topic(self, prefix: str, redirect: TopicRedirect) -> None:
        """Asks `redirect` about messages whose topic begins with `prefix`. Raises `ValueError`
        where the prefix has a redirect already."""
        if prefix in self._topics:
            raise ValueError(f"there is a redirect for {prefix} already")
        self._topics[prefix] = redirect
        self.prefixes = tuple(self._topics)

    def route_by_topic(self, draft: Draft) -> None:
        """Asks the redirect of the message's topic; to be called before the broker adds its own
        properties. Raises `RequestError` where the message is refused."""
        topic = draft.message.topic
        for prefix, redirect in self._topics.items():
            if topic.startswith(prefix):
                redirect(draft)
                return

    def route_by_property(self, draft: Draft) -> bool:
        """Asks the redirects of the message's properties in the order of their stages; to be called
        with all its properties. Returns whether one took it; raises `RequestError` where the
        message is refused."""
        if self.properties.isdisjoint(draft.properties):
            # As nearly always.
            return False
        for names, redirect in self._by_stage:
            if not names.isdisjoint(draft.properties) and redirect(draft):
                return True
        return False


def reject_transactions(config: BrokerConfig) -> PropertyRedirect:
    """Returns the redirect that refuses half messages with NO_PERMISSION while
    `rejectTransactionMessage` is true."""

    def reject(draft: Draft) -> bool:
        if not config.reject_transaction_message or not draft.wants_transaction:
            return False
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"the broker {config.broker_ip1} takes no transactional messages:"
            " rejectTransactionMessage=true",
        )

    return reject
