"""The brokers that have topics."""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.wire.errors import RequestError

#: Topics of one client that are looked at.
MAX_TOPICS = 256


async def brokers_of_topics(brokers: IBrokers, topics: Iterable[str]) -> list[str]:
    """Returns the names of the brokers that have one of the first `MAX_TOPICS` topics. Where no
    name server answers any more these are the ones that were found before; raises `RequestError`
    where none was."""
    found: set[str] = set()
    for topic in list(topics)[:MAX_TOPICS]:
        try:
            route = await brokers.route(topic)
        except RequestError:
            if not found:
                raise
            break
        if route is not None:
            found.update(data.broker_name for data in route.broker_datas)
    return sorted(found)
