"""Moves groups of a new master behind what was popped since their offsets were written or copied,
before anything is popped of it.

Rules: docs/formats/pop.md, "After a kill".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.pop.check_points import revive_queue_ids
from rocketmq_tw.broker.pop.popped_since import PoppedSince
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.names import popped_topic
from rocketmq_tw.runtime.scope import Scope

log = Logger()


class PopCatchUp:
    """Moves the groups by what the revive topic `topic` says; ends with `scope`, the role's."""

    def __init__(
        self, host: Host, writing: Writing, tables: Tables, topic: str, scope: Scope
    ) -> None:
        self._host = host
        self._writing = writing
        self._tables = tables
        self._topic = topic
        self._scope = scope
        self._since: PoppedSince | None = None

    def begin(self, done: Callable[[], None]) -> None:
        """Calls `done` once it is known where pops begin; not where the scope is over before."""
        dispatched = partial(self._move_groups, self._scope.while_it_lasts(done))
        self._scope.on_end(self._writing.dispatcher.when_dispatched(dispatched))

    def put_back(self, group: str, topic: str, queue_id: int) -> None:
        """Notes that a group is put back meanwhile; see `OffsetTable`."""
        if self._since is not None:
            self._since.put_back(group, topic, queue_id)

    def _move_groups(self, done: Callable[[], None]) -> None:
        store, offsets, config = self._writing.store, self._tables.offsets, self._host.config
        place = offsets.as_of.place
        if place is None:
            done()
            return
        since = self._since = PoppedSince(
            store, offsets, self._topic, config.broker_name, place, self._may_be_popped
        )
        queue_ids = revive_queue_ids(store, self._topic, config.revive_queue_num)

        def failed(failure: Failure) -> None:
            log.failure(
                "groups cannot be moved behind what was popped before this broker became the"
                " master: they may get some of it once more",
                failure,
            )

        def moved(_: None) -> None:
            if since.count and not self._scope.is_over:
                log.info(
                    "in {count} queues groups go on behind what was popped since their offsets"
                    " were written or copied",
                    count=since.count,
                )
            done()

        steps = self._scope.steps(since.steps(queue_ids))
        self._host.in_slices(steps).addErrback(failed).addCallback(moved)

    def _may_be_popped(self, topic: str, group: str, queue_id: int) -> bool:
        # The table may not have a retry topic yet in which messages are.
        if popped_topic(topic, group) != topic:
            return group in self._tables.groups
        return queue_exists(self._tables, topic, group, queue_id)


def queue_exists(tables: Tables, topic: str, group: str, queue_id: int) -> bool:
    """Returns whether there are the topic, with such a queue to read, and the group."""
    config = tables.topics.get(topic)
    return config is not None and queue_id < config.read_queue_nums and group in tables.groups
