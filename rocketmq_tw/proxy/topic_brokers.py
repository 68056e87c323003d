"""Finds the brokers that have the topics of a client: these are told of it, and asked for its
group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.clients import MAX_CLIENT_TOPICS
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.wire.errors import RequestError


class TopicBrokers(NamedTuple):
    """The names of the brokers that have topics; without all of them where no name server answered
    any more, or they were not wanted any more."""

    names: list[str]
    is_complete: bool


async def find_brokers(
    clock: IReactorTime,
    brokers: IBrokers,
    topics: Iterable[str],
    is_wanted: Callable[[], bool] = lambda: True,
) -> TopicBrokers:
    """Returns the brokers that have one of the first `MAX_CLIENT_TOPICS` topics, which are looked
    at in several turns of the reactor where they are many, for as long as they are wanted; raises
    `RequestError` where no name server answers and none was found before."""
    found: set[str] = set()
    for number, topic in enumerate(list(topics)[:MAX_CLIENT_TOPICS]):
        try:
            route = await brokers.route(topic)
        except RequestError:
            if not found:
                raise
            return TopicBrokers(sorted(found), False)
        if route is not None:
            before = len(found)
            found.update(data.broker_name for data in route.broker_datas)
            if len(found) > before and _are_all(found, brokers):
                break
        if every(number):
            await deferLater(clock, 0)
            if not is_wanted():
                return TopicBrokers(sorted(found), False)
    return TopicBrokers(sorted(found), True)


async def brokers_of_topics(
    clock: IReactorTime, brokers: IBrokers, topics: Iterable[str]
) -> list[str]:
    """Returns the names that `find_brokers` finds."""
    return (await find_brokers(clock, brokers, topics)).names


def _are_all(found: set[str], brokers: IBrokers) -> bool:
    """Returns whether no other topic can lead to a broker that was not found."""
    return brokers.are_told() and found.issuperset(brokers.names())
