"""Pairs of a topic and a group, found by either."""

from __future__ import annotations

from collections.abc import Iterable


def pair_key(topic: str, group: str) -> str:
    """How stock writes a pair."""
    return f"{topic}@{group}"


def split_key(key: str) -> tuple[str, str]:
    """Topic and group of a key."""
    topic, _, group = key.partition("@")
    return topic, group


class PairIndex:
    """Which keys have the topic, and which the group."""

    def __init__(self) -> None:
        self._groups: dict[str, set[str]] = {}
        self._topics: dict[str, set[str]] = {}

    def fill(self, keys: Iterable[str]) -> None:
        """Adds all of `keys`."""
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        topic, group = split_key(key)
        self._groups.setdefault(topic, set()).add(group)
        self._topics.setdefault(group, set()).add(topic)

    def discard(self, key: str) -> None:
        topic, group = split_key(key)
        for index, name, other in ((self._groups, topic, group), (self._topics, group, topic)):
            others = index.get(name)
            if others is not None:
                others.discard(other)
                if not others:
                    del index[name]

    def take_topic(self, topic: str) -> set[str]:
        """The groups that a topic has, and has no more; `discard` ends it for each of them."""
        return self._groups.pop(topic, set())

    def take_group(self, group: str) -> set[str]:
        """The topics that a group has, and has no more; `discard` ends it for each of them."""
        return self._topics.pop(group, set())

    def topics_of(self, group: str) -> set[str]:
        return set(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        return set(self._groups.get(topic, ()))
