"""Finds the brokers that have the topics of a client: these are told of it, and asked for its
group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.wire.errors import RequestError

#: Topics of one client that are looked at.
_MAX_TOPICS = 256


class TopicBrokers(NamedTuple):
    """The names of the brokers that have topics; without all of them where no name server answered
    any more."""

    names: list[str]
    is_complete: bool


async def find_brokers(brokers: IBrokers, topics: Iterable[str]) -> TopicBrokers:
    """Returns the brokers that have one of the first `_MAX_TOPICS` topics; raises `RequestError`
    where no name server answers and none was found before."""
    found: set[str] = set()
    for topic in list(topics)[:_MAX_TOPICS]:
        try:
            route = await brokers.route(topic)
        except RequestError:
            if not found:
                raise
            return TopicBrokers(sorted(found), False)
        if route is not None:
            found.update(data.broker_name for data in route.broker_datas)
    return TopicBrokers(sorted(found), True)


async def brokers_of_topics(brokers: IBrokers, topics: Iterable[str]) -> list[str]:
    """Returns the names that `find_brokers` finds."""
    return (await find_brokers(brokers, topics)).names
