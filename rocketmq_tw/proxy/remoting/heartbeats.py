"""Heartbeats of classic clients (34) and their unregistration (35).

A client sends its heartbeat to each broker that it knows. Here all of these are the proxy, which
passes the first of them on to all brokers of the client and answers the others itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.message import names
from rocketmq_tw.net.errors import RemotingError, RequestTimeout
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.net.networks import host_of
from rocketmq_tw.proxy.brokers import IBrokers, unseen_groups
from rocketmq_tw.proxy.heartbeat_sync.records import REMOTING, Origin
from rocketmq_tw.proxy.heartbeat_sync.telling import Telling
from rocketmq_tw.proxy.memberships import groups_of_heartbeat, groups_of_unregistration
from rocketmq_tw.proxy.remoting.clients import ClassicClient, ClassicClients
from rocketmq_tw.proxy.remoting.passing import answer_to, pass_on
from rocketmq_tw.proxy.topic_brokers import brokers_of_topics, find_brokers
from rocketmq_tw.runtime.fairness import FewAtOnce
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import (
    MAX_GROUPS_PER_PEER,
    ConsumerData,
    HeartbeatData,
    decode_heartbeat,
)
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Seconds within which a broker is not told the same of a client again: much less than the 30 from
#: one heartbeat to the next, more than a round to all brokers takes.
ROUND = 5.0
#: Seconds that a broker gets: clients wait 3 s for the answer, whichever broker hangs.
BROKER_TIMEOUT = 2.0
MAX_NAME_LENGTH = 255
#: Clients whose brokers are looked for at the same time.
_SEARCHES = 16


class ClassicHeartbeats:
    """Registers classic clients with brokers; `clock` tells when they were told last."""

    def __init__(
        self, brokers: IBrokers, clients: ClassicClients, clock: IReactorTime, telling: Telling
    ) -> None:
        self._brokers = brokers
        self._clients = clients
        self._clock = clock
        self._telling = telling
        #: Clients whose brokers are looked for anew.
        self._searching = FewAtOnce[ClassicClient](_SEARCHES)
        clients.gone.add(telling.gone)

    async def heartbeat(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 34: registers the client with all brokers that it knows. Refuses what all of them
        refuse, with SERVICE_NOT_AVAILABLE where none answers."""
        data = decode_heartbeat(request.body)
        names.check_length("clientID", data.client_id)
        client = self._clients.of(peer)
        client.client_id = data.client_id
        self._clients.keep_groups(client, _topic_of_each_group(data))
        digest = blake2b(request.body, digest_size=16).digest()
        now = self._clock.seconds()
        self._clients.heard(client, now)
        brokers = await self._brokers_of(client, data, digest, now)
        if not peer.connected:
            return request.response()
        self._brokers.enter(client, groups_of_heartbeat(data), brokers)
        origin = _origin(data.client_id, request, peer)
        unseen = unseen_groups(self._brokers, client, client.groups)
        self._telling.heard(client, origin, data.consumer_data_set, digest, _attribute, unseen)
        due = [name for name in brokers if not _is_told(client, name, digest, now)]
        if not due:
            return request.response()
        answers, hung = await self._ask_all(due, request, client)
        told = [name for name, answer in answers.items() if answer.code == ResponseCode.SUCCESS]
        # One that hangs has been told, too; the next heartbeat of the round would wait in vain.
        for name in (*told, *hung) if told else ():
            client.registered[name] = digest, now
        if told or len(due) < len(brokers):
            # Our own answer: it does not offer heartbeats without subscriptions, since brokers
            # that come later need them.
            return request.response()
        if not answers:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "no broker answers: send the heartbeat again"
            )
        return answer_to(request, next(iter(answers.values())))

    def unregister(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 35: takes the client out of its groups at all brokers that know it."""
        client = self._clients.of(peer)
        groups = groups_of_unregistration(request)
        self._brokers.leave(client, groups)
        self._telling.left_memberships(client, groups)
        # It is registered anew, and with all, where it comes back.
        client.registered.clear()
        return request.response()

    async def _brokers_of(
        self, client: ClassicClient, data: HeartbeatData, digest: bytes, now: float
    ) -> list[str]:
        """Returns the brokers that the client knows. It learns of them here or elsewhere, as over
        another connection: those in the routes that it had, of its topics and of its requests, or
        else all. At a port that stands for one broker it is that one."""
        if client.broker_name is not None:
            return [client.broker_name]
        topics = dict.fromkeys(
            wanted.topic
            for consumer in data.consumer_data_set
            for wanted in consumer.subscription_data_set
        )
        if not client.told_brokers:
            client.told_brokers.update(await brokers_of_topics(self._clock, self._brokers, topics))
        elif not _is_fresh(client.searched, digest, now):
            client.searched = digest, now
            # What is not in memory counts from the next heartbeat on: this one does not wait.
            self._searching.add(
                client,
                lambda: Deferred.fromCoroutine(self._search(client, topics)),
                host_of(client.address),
            )
        if not client.told_brokers:
            return sorted(self._brokers.names())
        return sorted(client.told_brokers | client.named_brokers)

    async def _search(self, client: ClassicClient, topics: Iterable[str]) -> None:
        """Looks which brokers have got topics of a client since it was told of others, until it is
        gone or has told other topics."""
        searched = client.searched

        def is_wanted() -> bool:
            return client.is_connected and client.searched == searched

        try:
            found = await find_brokers(self._clock, self._brokers, topics, is_wanted)
            client.told_brokers.update(found.names)
        except RequestError:
            # No name server answers: the next round looks again.
            return

    async def _ask_all(
        self, broker_names: Iterable[str], request: RemotingCommand, client: ClassicClient
    ) -> tuple[dict[str, RemotingCommand], list[str]]:
        """Returns what brokers answer, and which of the others hang."""
        asked = list(broker_names)
        results: list[tuple[bool, Any]] = await DeferredList(
            [self._brokers.ask(name, pass_on(request), BROKER_TIMEOUT, client) for name in asked],
            consumeErrors=True,
        )
        for is_answered, result in results:
            if not is_answered and not result.check(RemotingError):
                result.raiseException()
        answers, hung = {}, []
        for name, (is_answered, result) in zip(asked, results, strict=True):
            if is_answered:
                answers[name] = result
            elif result.check(RequestTimeout):
                hung.append(name)
        return answers, hung


def _origin(client_id: str, request: RemotingCommand, peer: IPeer) -> Origin:
    language = getattr(request.language, "name", "")
    return Origin(client_id, REMOTING, peer.address, peer.local_address, language, request.version)


def _attribute(consumer: ConsumerData) -> str:
    return encode_body(consumer.subscription_data_set).decode()


def _topic_of_each_group(data: HeartbeatData) -> dict[str, str]:
    """Returns the consumer groups of a heartbeat, each with a topic that its members have in common
    with nobody else: not its retry topic, which is at more brokers than they all know."""
    groups = {}
    for consumer in data.consumer_data_set[:MAX_GROUPS_PER_PEER]:
        group = consumer.group_name
        for wanted in consumer.subscription_data_set:
            if wanted.topic != names.retry_topic(group):
                groups[group] = wanted.topic
                break
    if any(max(len(group), len(topic)) > MAX_NAME_LENGTH for group, topic in groups.items()):
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"a group or topic has a name of more than {MAX_NAME_LENGTH} characters: shorten it",
        )
    return groups


def _is_told(client: ClassicClient, broker_name: str, digest: bytes, now: float) -> bool:
    return _is_fresh(client.registered.get(broker_name, (b"", 0.0)), digest, now)


def _is_fresh(noted: tuple[bytes, float], digest: bytes, now: float) -> bool:
    """Returns whether that was noted of the same heartbeat in this round."""
    known, at = noted
    return known == digest and now - at < ROUND
