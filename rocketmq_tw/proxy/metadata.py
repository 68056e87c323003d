"""Remembers for a while what brokers say of topics and groups: their configurations."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterable
from math import inf
from random import sample
from typing import Any, Generic, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import ConnectError, RemotingError
from rocketmq_tw.proxy.asking import AskingInTurn, AskingTogether
from rocketmq_tw.proxy.avoided import AvoidedBrokers
from rocketmq_tw.proxy.brokers import ABSENT_SECONDS, IBrokers
from rocketmq_tw.runtime.shared_results import JoinedResults
from rocketmq_tw.wire.bodies.base import Body, decode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.clients import GetSubscriptionGroupConfigRequestHeader
from rocketmq_tw.wire.headers.topics import GetTopicConfigRequestHeader

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
B = TypeVar("B", bound=Body)

#: Brokers of a topic that are asked until one says what it is, and the seconds after which the next
#: one is asked as well: the first send of a topic waits for that.
_MOST_ASKED = 3
_NEXT_AFTER = 0.5
#: Seconds for which other brokers are waited for once one has said what a group is.
_OTHERS_SECONDS = 1.0
#: Brokers that are asked for a group together, and topics whose brokers these are.
_MOST_OF_GROUP = 16
_MOST_TOPICS = 16

_DEFAULTS = ProxyConfig()
_log = Logger()


class _Limits(NamedTuple):
    """`refresh`: seconds after which a value is asked for again, while it is still given out;
    `expire`: seconds after which it is given out no more; `most`: values that are remembered."""

    refresh: int
    expire: int
    most: int


class _GroupOnBrokers(NamedTuple):
    group: str
    brokers: tuple[str, ...]

    def __str__(self) -> str:
        return self.group


class Metadata:
    """The configurations of topics and groups; for how long and how many of them are remembered is
    in `config`."""

    def __init__(
        self, clock: IReactorTime, brokers: IBrokers, config: ProxyConfig = _DEFAULTS
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        #: Brokers that are asked for topics last.
        self._avoided = AvoidedBrokers(clock)
        of_topics = _Limits(
            config.topic_config_cache_refresh_seconds,
            config.topic_config_cache_expired_seconds,
            config.topic_config_cache_max_num,
        )
        of_groups = _Limits(
            config.subscription_group_config_cache_refresh_seconds,
            config.subscription_group_config_cache_expired_seconds,
            config.subscription_group_config_cache_max_num,
        )
        self._topics = _Remembered[str, TopicConfig](clock, self._load_topic, of_topics)
        self._groups = _Remembered[_GroupOnBrokers, SubscriptionGroupConfig](
            clock, self._load_group, of_groups
        )

    def topic(self, topic: str) -> Deferred[TopicConfig | None]:
        """Fires with a topic's configuration; None where there is none, or no broker says it."""
        return self._topics.get(topic)

    async def topic_within(self, topic: str, seconds: float) -> TopicConfig | None:
        """Returns a topic's configuration as `topic` does; where brokers take longer to say it the
        last one that they said, or None."""
        try:
            return await self.topic(topic).addTimeout(seconds, self._clock)
        except TimeoutError:
            return self._topics.value(topic)

    def known_topic(self, topic: str) -> TopicConfig | None:
        """Returns a topic's configuration where it was asked for lately; None where `topic` has to
        be asked, which takes longer."""
        return self._topics.fresh(topic)

    async def group(self, group: str, topics: Iterable[str]) -> SubscriptionGroupConfig | None:
        """Returns a group's configuration as the brokers have it that serve its topics: one that
        consumes in order where any of them has such a one. None where there is none. Raises
        what asking them failed with, mostly a `RemotingError`, where none says it or ever did."""
        names: set[str] = set()
        for topic in list(topics)[:_MOST_TOPICS]:
            try:
                route = await self._brokers.route(topic)
            except RequestError as error:
                _log.warn(
                    "the route of topic {topic} is not known: {error}", topic=topic, error=error
                )
                break
            if route is not None:
                names.update(queues.broker_name for queues in route.queue_datas)
        brokers = sorted(names or self._brokers.names())[:_MOST_OF_GROUP]
        if not brokers and not self._brokers.are_told():
            raise ConnectError(
                group, "no name server has told yet which brokers there are: try again"
            )
        place = _GroupOnBrokers(group, tuple(brokers))
        config = await self._groups.get(place)
        why = None if config is not None else self._groups.error(place)
        if why is not None:
            raise why
        return config

    async def group_or_none(
        self, group: str, topics: Iterable[str]
    ) -> SubscriptionGroupConfig | None:
        """Returns a group's configuration as `group` does, and None also where no broker says
        it."""
        try:
            return await self.group(group, topics)
        except (RemotingError, RequestError):
            return None

    async def _load_topic(self, topic: str) -> TopicConfig | None:
        route = await self._brokers.route(topic)
        if route is None:
            return None
        names = [queues.broker_name for queues in route.queue_datas]
        header = GetTopicConfigRequestHeader(topic=topic)
        every = sorted(set(names))
        avoided = self._avoided.now()
        chosen = sorted(sample(every, len(every)), key=lambda name: name in avoided)[:_MOST_ASKED]

        def ask(name: str, timeout: float) -> Deferred[TopicConfig | None]:
            asked = self._ask(name, RequestCode.GET_TOPIC_CONFIG, header, TopicConfig, timeout)
            return Deferred.fromCoroutine(asked)

        asking = AskingInTurn(
            self._clock,
            chosen,
            ask,
            lambda found: found is not None,
            _NEXT_AFTER,
            self._avoided.add,
        )
        found = await asking.answer()
        if found is None and asking.errors:
            raise next(iter(asking.errors.values()))
        return found

    async def _load_group(self, place: _GroupOnBrokers) -> SubscriptionGroupConfig | None:
        header = GetSubscriptionGroupConfigRequestHeader(group=place.group)
        code, body = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupConfig

        def ask(name: str, timeout: float) -> Deferred[SubscriptionGroupConfig | None]:
            return Deferred.fromCoroutine(self._ask(name, code, header, body, timeout))

        asking = AskingTogether(
            self._clock, place.brokers, ask, lambda found: found is not None, _OTHERS_SECONDS
        )
        configs = [found for found in await asking.answers() if found is not None]
        if asking.errors and not configs:
            raise asking.errors[0]
        former = None if asking.is_complete else self._groups.value(place)
        if former is not None:
            # One of the brokers that do not answer may have said it.
            configs.insert(0, former)
        in_order = [config for config in configs if config.consume_message_orderly]
        return next(iter(in_order or configs), None)

    async def _ask(
        self, name: str, code: RequestCode, header: Header, body: type[B], timeout: float
    ) -> B | None:
        """Returns what a broker says; None where it has nothing of the name. Raises
        `RemotingError`."""
        request = RemotingCommand.request(code, header)
        answer = await self._brokers.ask(name, request, timeout)
        return decode_body(body, answer.body) if answer.code == ResponseCode.SUCCESS else None


class _Entry(Generic[T]):
    __slots__ = ("error", "loaded_at", "value")

    def __init__(self) -> None:
        self.loaded_at = -inf
        self.value: T | None = None
        #: Why it could not be loaded the last time; None where it could.
        self.error: RemotingError | RequestError | None = None


class _Remembered(Generic[K, T]):
    """Values by name, each of them loaded by one question at a time."""

    def __init__(
        self,
        clock: IReactorTime,
        load: Callable[[K], Coroutine[Any, Any, T | None]],
        limits: _Limits,
    ) -> None:
        self._clock = clock
        self._load = load
        self._limits = limits
        #: Those that were loaded last are behind the others.
        self._entries: dict[K, _Entry[T]] = {}
        self._loading = JoinedResults[K, T | None]()

    def get(self, name: K) -> Deferred[T | None]:
        """Fires with a value; with the last one, or None, where it cannot be loaded."""
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _Entry()
        age = self._clock.seconds() - entry.loaded_at
        is_over = age >= (ABSENT_SECONDS if entry.value is None else self._limits.expire)
        if is_over or (age >= self._limits.refresh and name not in self._loading):
            loaded = self._loading.get(
                name, lambda: Deferred.fromCoroutine(self._loaded(name, entry))
            )
            if is_over:
                return loaded
        return succeed(entry.value)

    def fresh(self, name: K) -> T | None:
        """Returns a value that need not be asked for again; None without one."""
        entry = self._entries.get(name)
        if entry is None or self._clock.seconds() - entry.loaded_at >= self._limits.refresh:
            return None
        return entry.value

    def value(self, name: K) -> T | None:
        """Returns the last value; None where there was none."""
        entry = self._entries.get(name)
        return None if entry is None else entry.value

    def error(self, name: K) -> RemotingError | RequestError | None:
        """Returns why a value could not be loaded the last time; None where it could."""
        entry = self._entries.get(name)
        return None if entry is None else entry.error

    async def _loaded(self, name: K, entry: _Entry[T]) -> T | None:
        """Returns a value as brokers have it now, or the last one where they do not tell."""
        try:
            entry.value = await self._load(name)
            entry.error = None
        except (RemotingError, RequestError) as error:
            _log.warn(
                "no broker tells the configuration of {name}: {error}", name=name, error=error
            )
            entry.error = error
        except Exception:
            _log.failure("asking brokers for the configuration of {name} failed", name=name)
        entry.loaded_at = self._clock.seconds()
        self._entries.pop(name, None)
        self._entries[name] = entry
        while len(self._entries) > self._limits.most:
            del self._entries[next(iter(self._entries))]
        return entry.value
