"""A slave's copy of its master's topics, groups, consumer offsets, delay and timer progress,
and how groups read topics.

Offsets are the master's, smaller ones too: one that stayed larger, where a reset came while this
broker was down or was the master itself, would let groups miss messages after a fail-over. What a
kill of the master takes back is consumed or delivered again at most. What the master has no more
goes where it had it at the last copy and was not started in between. And offsets wait until this
log has what they stand for: a delay level must not be past a message whose delivery the log lacks.

Nor does a master that lost its files take anything from its slave: a topic stays while the master
still has messages of it, and groups stay where the master's version is behind the slave's. Rules:
docs/replication.md, "What is promised"; stock's `SlaveSynchronize` (requests 21, 43, 45, 201).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.assignment.part import Assignment
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.replicas.master_calls import MasterCalls
from rocketmq_tw.broker.replicas.missed_topics import Since, find_missed, known_until
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import RoleState
from rocketmq_tw.broker.tables.offsets.table import join_light_offsets
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.versioned import reported
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.timer.progress import TimerCheckpoint
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.queue_kinds import unsupported
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body, decode_by_entry
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupTable
from rocketmq_tw.wire.bodies.queues import ConsumerOffsetTable, DelayOffsetTable
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable, TopicQueueMappingTable
from rocketmq_tw.wire.codes import RequestCode


class _Progress(NamedTuple):
    """Offsets that hold once the log is dispatched up to `end`; the master's log ended at `begin`
    before they were told. `boot` is when it was started."""

    begin: int
    end: int
    boot: int
    consumers: ConsumerOffsetTable
    delays: DelayOffsetTable
    timer: TimerCheckpoint | None


_NOTHING = _Progress(0, 0, -1, ConsumerOffsetTable(), DelayOffsetTable(), None)


class CopiedTables(Part):
    """`copy` asks the master; `log_grew` takes over what waited for the log."""

    log = Logger()

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        writing: Writing,
        tables: Tables,
        delay: Delay,
        timer: Timer,
        assignment: Assignment,
    ) -> None:
        #: Asks the master.
        self.calls = MasterCalls(host.client, host.in_thread)
        self.topics = tables.topics
        self._role = role
        self._in_slices = host.in_slices
        self._following = False
        self._store = writing.store
        self._dispatcher = writing.dispatcher
        #: Up to when the topics have all changes, in ms; None where their version says so.
        self._topics_until: int | None = None
        #: Whether the master says of its topics as of which place of the log they are.
        self._tells_place = False
        self._mappings = tables.mappings
        self._groups = tables.groups
        self._reconciling = tables.reconciling
        self._delay = delay
        self._timer = timer.progress
        self._modes = assignment.modes
        #: Topics that the master may have lost or be about to remove: looked at again each time.
        self._lost: dict[str, TopicConfig] = {}
        #: Topics of the master that cannot be served here, with the attribute that says so.
        self._unserved: dict[str, str] = {}
        self._waiting: _Progress | None = None
        #: What the master said the last time; empty before that.
        self._former = _NOTHING
        #: Over when there is another master: what the former one still answers is not taken then.
        self._master = Scope()

    def enter(self, state: RoleState) -> None:
        # Before this broker makes versions of its own.
        if self._topics_until is None:
            self._topics_until = known_until(self.topics.data_version)
            # A loss of power may have taken what the place counts.
            self._end_place_at_log()

    def ready(self, state: RoleState) -> None:
        if not state.role.delivers:
            return
        since = Since(self.topics.as_of.place, self._topics_until or 0)
        self._topics_until = None
        scope = self._role.scope

        def dispatched() -> None:
            self._in_slices.unwatched(
                scope.steps(self._take_missed(since, scope)), "giving queues their topics"
            )

        scope.on_end(self._dispatcher.when_dispatched(dispatched))

    def _take_missed(self, since: Since, scope: Scope) -> Iterator[None]:
        """Makes the topics that the former master had and did not tell of; then the table has all
        topics of the log."""
        found: list[TopicConfig] = []
        as_of, store = self.topics.as_of, self._store
        end = store.dispatched_offset
        yield from find_missed(store, self.topics, since, found)
        if self._role.is_master:
            # What is not confirmed yet may be replaced by another master's.
            as_of.begin(lambda: store.dispatched_offset)
            scope.on_end(as_of.end)
        else:
            as_of.place = end
        if not found:
            return
        self.log.warn(
            "the log has messages of topics that neither topics.json nor a former master told of:"
            " they get the queues that their messages show, change them as needed (rmqadmin"
            " updateTopic): {topics}",
            topics=", ".join(f"{one.topic_name} ({one.write_queue_nums})" for one in found),
        )
        self.topics.add_found(found)

    def forget(self) -> None:
        """Forgets what the former master said: there is another one now, and a copy that is under
        way ends."""
        self._end_place_at_log()
        self._master.end()
        self._master = Scope()
        self._waiting = None
        self._former = _NOTHING
        self._lost = {}
        self._tells_place = False

    def _end_place_at_log(self) -> None:
        """Has the table be as of no place behind the end of this log: other records take these
        places, of topics that it does not count."""
        as_of, end = self.topics.as_of, self._store.end_offset
        if as_of.is_kept and as_of.place is not None and as_of.place > end:
            as_of.cut(end)
            self.topics.keep_place().addErrback(reported)

    def is_unserved(self, topic: str) -> bool:
        """Returns whether the master has the topic and this broker leaves it out for its kind."""
        return topic in self._unserved

    def copy(self, address: str) -> Deferred[None]:
        """Copies everything from the master at `address`, one copy at a time; a table that fails
        leaves its own as it was, and `copy` fails with the first once the others are copied: one
        may be too large for a frame."""
        master = self._master
        copying: Deferred[None] = self._copy(address, master)
        ended = master.on_end(copying.cancel)

        def copied(result: Any) -> Any:
            ended()
            return result

        return copying.addBoth(copied)

    @inlineCallbacks
    def _copy(self, address: str, master: Scope) -> Generator[Deferred[Any], Any, None]:
        failures = []
        for table in (
            self._copy_topics,
            self._copy_groups,
            self._copy_offsets,
            self._copy_modes,
        ):
            try:
                yield table(address, master)
            except Exception as error:
                if master.is_over:
                    return
                failures.append(error)
        if failures:
            raise failures[0]

    @inlineCallbacks
    def _copy_topics(self, address: str, master: Scope) -> Generator[Deferred[Any], Any, None]:
        end: int | None = None
        if not self._tells_place:
            # What it tells after that is newer.
            end = (yield self.calls.log_range(address)).end
        topics, kinds = yield self.calls.table(
            address, RequestCode.GET_ALL_TOPIC_CONFIG, _decode_topics
        )
        self._tells_place = topics.log_place is not None
        if topics.log_place is None:
            topics.log_place = end
        self._log_unserved(kinds)
        if topics.data_version != self.topics.data_version or self._lost:
            lost = yield self._lost_by_master(address, topics)
            if not master.is_over:
                self._take_topics(topics, lost)
        elif not master.is_over:
            self.topics.as_of.place = topics.log_place
        if not master.is_over:
            self._take_mappings(topics)

    @inlineCallbacks
    def _copy_modes(self, address: str, master: Scope) -> Generator[Deferred[Any], Any, None]:
        modes = yield self.calls.request_modes(address)
        if modes is not None and not master.is_over:
            self._modes.replace_all(modes)

    @inlineCallbacks
    def _copy_groups(self, address: str, master: Scope) -> Generator[Deferred[Any], Any, None]:
        # What the master tells now counts all pops that are in this log.
        end = self._store.dispatched_offset
        groups = yield self.calls.table(
            address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _decode_groups
        )
        if master.is_over:
            return
        if groups.data_version != self._groups.data_version:
            self._take_groups(groups)
        self._groups.as_of.place = end

    @inlineCallbacks
    def _copy_offsets(self, address: str, master: Scope) -> Generator[Deferred[Any], Any, None]:
        calls = self.calls
        if self._role.delivers:
            # It acts for its master, and its own progress counts.
            return
        if self._waiting is not None:
            # Replacing it with newer ones might never let a slave that is behind reach any.
            return
        before = yield calls.log_range(address)
        consumers = yield calls.table(address, RequestCode.GET_ALL_CONSUMER_OFFSET, decode_offsets)
        delays = yield calls.table(
            address,
            RequestCode.GET_ALL_DELAY_OFFSET,
            lambda data: decode_body(DelayOffsetTable, data),
        )
        timer = yield calls.timer_checkpoint(address)
        log = yield calls.log_range(address)
        if not master.is_over and log.boot == before.boot:
            self._waiting = _Progress(before.end, log.end, log.boot, consumers, delays, timer)
            self.log_grew()

    def log_grew(self) -> None:
        """Takes over the offsets that waited, if the log has reached what they stand for."""
        waiting = self._waiting
        if waiting is None or self._following or self._store.dispatched_offset < waiting.end:
            return
        if self._role.delivers:
            self._waiting = None
            return
        self._following = True

        def failed(failure: Failure) -> None:
            self.log.failure(
                "taking over the offsets of groups that were copied from the master failed", failure
            )
            if self._waiting is waiting:
                # The next copy brings them again.
                self._waiting = None

        def followed(_: None) -> None:
            self._following = False
            # Another master's may wait by now.
            self.log_grew()

        self._in_slices(self._follow(waiting)).addErrback(failed).addCallback(followed)

    def _follow(self, waiting: _Progress) -> Iterator[None]:
        """Ends early where there is another master meanwhile, or this broker acts for it; what was
        taken over by then holds."""
        former = self._former if self._former.boot == waiting.boot else _NOTHING
        for _ in self._reconciling.follow(waiting.consumers, former.consumers):
            yield
            if self._role.delivers:
                self._waiting = None
            if self._waiting is not waiting:
                return
        self._waiting, self._former = None, waiting
        self._delay.follow(waiting.delays, waiting.begin)
        if waiting.timer is not None:
            self._timer.follow(waiting.timer)

    def _log_unserved(self, kinds: dict[str, str]) -> None:
        """Topics whose queues are of a kind that does not exist here were left out: what a slave
        would show of them has other offsets than the master's."""
        for name in kinds.keys() - self._unserved.keys():
            self.log.error(
                "the master's topic {topic!r} has {attribute}, and such queues do not exist here:"
                " its messages are copied with the log, and this slave serves none of them",
                topic=name,
                attribute=kinds[name],
            )
        self._unserved = kinds

    @inlineCallbacks
    def _lost_by_master(
        self, address: str, table: TopicConfigTable
    ) -> Generator[Deferred[Any], Any, dict[str, TopicConfig]]:
        """Fires with the topics that are not in the master's table though it has messages of
        them."""
        lost: dict[str, TopicConfig] = {}
        for topic in self.topics.all().keys() - table.topic_config_table.keys():
            config = self.topics.get(topic)
            if config is None or topic in self._unserved:
                continue
            for queue_id in self._store.queue_ids(topic):
                if (yield self.calls.max_queue_offset(address, topic, queue_id)):
                    lost[topic] = config
                    break
        return lost

    def _take_topics(self, table: TopicConfigTable, lost: dict[str, TopicConfig]) -> None:
        if lost.keys() - self._lost.keys():
            self.log.warn(
                "the master has messages of topics that its table lacks; kept here, make them"
                " again there (rmqadmin updateTopic): {topics}",
                topics=", ".join(sorted(lost)),
            )
        self._lost = lost
        gone = self.topics.all().keys() - table.topic_config_table.keys() - lost.keys()
        topics = lost | table.topic_config_table
        self._topics_until = known_until(table.data_version)
        self.topics.replace_all(msgspec.structs.replace(table, topic_config_table=topics))
        removed = sorted(topic for topic in gone if self._store.queue_ids(topic))
        for topic in removed:
            self.log.info("the master has no topic {topic!r} any more: removed", topic=topic)
        self._store.remove_topics(removed)

    def _take_mappings(self, table: TopicConfigTable) -> None:
        """4.9's masters have none."""
        version, mappings = table.mapping_data_version, table.topic_queue_mapping_detail_map
        own = self._mappings.table()
        if version is None or mappings is None or version == own.data_version:
            return
        if version.counter < own.data_version.counter:
            kept = own.topic_queue_mapping_info_map
            mappings = {name: kept[name] for name in kept if self.topics.get(name)} | mappings
        self._mappings.replace_all(
            TopicQueueMappingTable(topic_queue_mapping_info_map=mappings, data_version=version)
        )

    def _take_groups(self, table: SubscriptionGroupTable) -> None:
        own = self._groups.table()
        if table.data_version.counter < own.data_version.counter:
            table = msgspec.structs.replace(
                table,
                subscription_group_table=(
                    own.subscription_group_table | table.subscription_group_table
                ),
                forbidden_table=(own.forbidden_table or {}) | (table.forbidden_table or {}),
            )
        self._groups.replace_all(table)


def _decode_topics(data: bytes) -> tuple[TopicConfigTable, dict[str, str]]:
    """Returns the topics that this broker can serve; the others with the attribute that says why
    not."""
    table = decode_by_entry(TopicConfigTable, "topic_config_table", TopicConfig, data)
    kinds = {
        name: attribute
        for name, config in table.topic_config_table.items()
        if (attribute := unsupported(config))
    }
    for name in kinds:
        del table.topic_config_table[name]
    return table, kinds


def _decode_groups(data: bytes) -> SubscriptionGroupTable:
    return decode_by_entry(
        SubscriptionGroupTable, "subscription_group_table", SubscriptionGroupConfig, data
    )


def decode_offsets(data: bytes) -> ConsumerOffsetTable:
    """Reads the answer to 43."""
    table = decode_by_entry(ConsumerOffsetTable, "offset_table", dict[int, int], data)
    join_light_offsets(table)
    return table
