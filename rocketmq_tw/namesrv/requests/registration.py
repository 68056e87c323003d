"""Registrations and heartbeats of brokers: 103, 104, 322, 901, 904."""

import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger, LogLevel

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv.broker_ids import BrokerPlace, Holder
from rocketmq_tw.namesrv.brokers import (
    DEFAULT_HEARTBEAT_TIMEOUT,
    BrokerKey,
    LiveBroker,
    Registration,
    check_address,
    check_name,
)
from rocketmq_tw.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from rocketmq_tw.namesrv.liveness import Liveness
from rocketmq_tw.namesrv.requests.id_conflicts import IdConflicts
from rocketmq_tw.namesrv.requests.waiting import WaitingRegistrations
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.namesrv.route_views import ZONE_NAME
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.networks import host_of, is_loopback, is_same_host
from rocketmq_tw.runtime.fairness import SerialQueue
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.bodies.base import FEW_VALUES, DataVersion, decode_request, encode_body
from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody, decode_registration
from rocketmq_tw.wire.bodies.route import BrokerMemberGroupBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)

#: How a deflated body starts, and JSON never does.
ZLIB_START = b"\x78"
#: Old brokers start a few, if any; what is registered stays in memory.
MAX_FILTER_SERVERS = 64
#: Bytes of a registration, not deflated, that is read and taken in at once.
SMALL_REGISTRATION = 16 * 1024


class RegistrationRequests:
    """Takes registrations and heartbeats of brokers; docs/formats/bodies.md has the bodies."""

    log = Logger()

    def __init__(
        self,
        config: NamesrvConfig,
        table: RouteTable,
        kv: KvConfig,
        liveness: Liveness,
        clock: Any,
        now_ms: Callable[[], int],
        in_slices: Slices,
        in_thread: InThread,
    ) -> None:
        self._in_slices = in_slices
        self._in_thread = in_thread
        #: Whether the log names brokers that are new.
        self.names_new = True
        #: What a broker says later is not taken in before what it said first.
        self._of_peer = SerialQueue[IPeer]()
        self._waiting = WaitingRegistrations()
        self._id_conflicts = IdConflicts(clock, table.forget)
        self._config = config
        self._table = table
        self._kv = kv
        self._liveness = liveness
        self._now_ms = now_ms

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.QUERY_DATA_VERSION: self.data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.members,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
        }

    def register(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 103: takes in a broker and its topics; tells it of its master, and of ordered
        topics. Raises, or fails with, SYSTEM_ERROR where a field or the body is wrong or there is
        no room, SYSTEM_BUSY where the connection has too many registrations that wait."""
        header = request.header(RegisterBrokerRequestHeader)
        check_name("clusterName", header.cluster_name)
        check_name("brokerName", header.broker_name)
        check_address("brokerAddr", header.broker_addr)
        if header.ha_server_addr:
            check_address("haServerAddr", header.ha_server_addr)
        zone = request.ext_fields.get(ZONE_NAME)
        if zone:
            check_name(ZONE_NAME, zone)
        key = BrokerKey(header.cluster_name, header.broker_addr)
        # Its broker is not to count as silent while it waits.
        self._heard(key, peer)
        # Stock 5.3.3 with compressedRegister deflates and says that it did not.
        compressed = header.compressed or request.body.startswith(ZLIB_START)
        if not self._of_peer.is_busy(peer) and self._contested(header, peer) is not None:
            return self._of_peer.run(
                peer, lambda: self._take_contested(request, peer, header, compressed)
            )
        if compressed or len(request.body) > SMALL_REGISTRATION or self._of_peer.is_busy(peer):
            return self._waiting.add(
                self._of_peer,
                peer,
                key,
                len(request.body),
                lambda: self._take_slowly(request, peer, header, compressed),
            )
        body = _decode_topics(header, request.body, compressed)
        response, steps = self._take(request, peer, header, body)
        for _ in steps:
            pass
        return response

    def _contested(self, header: RegisterBrokerRequestHeader, peer: IPeer) -> LiveBroker | None:
        if not self._config.refuse_taken_broker_ids:
            return None
        host = host_of(peer.address)
        place = BrokerPlace(header.broker_name, header.broker_id, header.broker_addr, host)
        return self._table.contested(place, self._now_ms())

    @inlineCallbacks
    def _take_contested(
        self,
        request: RemotingCommand,
        peer: IPeer,
        header: RegisterBrokerRequestHeader,
        compressed: bool,
    ) -> Generator[Deferred[Any], Any, RemotingCommand]:
        """Takes a registration as `_take_slowly`, once it is settled whether it gets the id that a
        living broker of its group has."""
        yield self._id_conflicts.settle(
            peer, header.broker_addr, lambda: self._contested(header, peer)
        )
        answer: RemotingCommand = yield self._waiting.alone(
            peer, lambda: self._take_slowly(request, peer, header, compressed)
        )
        return answer

    @inlineCallbacks
    def _take_slowly(
        self,
        request: RemotingCommand,
        peer: IPeer,
        header: RegisterBrokerRequestHeader,
        compressed: bool,
    ) -> Generator[Deferred[Any], Any, RemotingCommand]:
        """Takes a large registration, or one that may inflate to one: reads it in a thread, and
        takes in a little in each turn."""
        if not peer.connected:
            return request.response()
        body = yield self._in_thread(lambda: _decode_apart(header, request.body, compressed))
        if not peer.connected:
            # Nobody would take the broker out again.
            return request.response()
        response, steps = self._take(request, peer, header, body)
        yield self._in_slices(steps)
        return response

    def _take(
        self,
        request: RemotingCommand,
        peer: IPeer,
        header: RegisterBrokerRequestHeader,
        body: RegisterBrokerBody,
    ) -> tuple[RemotingCommand, Iterator[None]]:
        """Returns the answer, to be sent once the steps are made."""
        new = Registration(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr,
            heartbeat_timeout=_positive(header.heartbeat_timeout_millis),
            acting_master=header.enable_acting_master,
            zone=request.ext_fields.get(ZONE_NAME),
            topics=body.topic_config_serialize_wrapper,
            filter_servers=tuple(body.filter_server_list),
            owner=peer,
            host=host_of(peer.address),
        )
        self._check_speaker(new, peer)
        holder = self._table.holder(new, self._now_ms())
        if holder is not None:
            self._warn_of_two(new, holder)
        displaced = self._table.make_room(new)
        if displaced is not None:
            self.log.error(
                "there is no more room for {name}, and most brokers were registered from {host}:"
                " {displaced} makes room for {address}",
                name=new.broker_name,
                host=displaced.host,
                displaced=displaced.key.address,
                address=new.address,
            )
        is_new = self._table.data_version(*new.key) is None
        master, steps = self._table.register(new, self._now_ms())
        self._liveness.watch(peer)
        if is_new:
            say = self.log.info if self.names_new else self.log.debug
            say(
                "broker {name} {number} of {cluster} registered at {address}",
                name=new.broker_name,
                number=new.broker_id,
                cluster=new.cluster,
                address=new.address,
            )
        answer = RegisterBrokerResponseHeader(
            ha_server_addr=master.ha_address, master_addr=master.address
        )
        return request.response(header=answer, body=self._order_topics()), steps

    def _check_speaker(self, new: Registration, peer: IPeer) -> None:
        """Raises `RequestError`, where `refuseTakenBrokerIds` is set, for a registration of a
        living broker that comes from another host than the one that registered it, the one of its
        address, and this machine: it would say where its slaves find it, and the broker would go
        with its connection."""
        live = self._table.at_address(new, self._now_ms())
        if live is None or live.owner is peer:
            return
        host, owner = host_of(peer.address), host_of(live.owner.address)
        if host in (owner, host_of(new.address)) or is_loopback(peer.address):
            return
        refuses = self._config.refuse_taken_broker_ids
        self.log.error(
            "{peer} registers a broker at {address}, where {owner} registered {name}, and {what}",
            peer=peer.address,
            address=new.address,
            owner=live.owner.address,
            name=live.broker_name,
            what="is refused" if refuses else "speaks for it from now on",
        )
        if refuses:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the broker at {new.address} was registered from {owner} and is alive: register"
                f" it from there or from its own address, give {new.broker_name} another brokerIP1"
                " or listenPort, or set refuseTakenBrokerIds=false at the name server",
            )

    def _warn_of_two(self, new: Registration, holder: Holder) -> None:
        """Raises `RequestError` where `refuseTakenBrokerIds` is set and the holder need not give
        way."""
        refuses = self._config.refuse_taken_broker_ids and not holder.gives_way
        what = "takes its place: stop one of the two"
        if holder.gives_way:
            what = "takes its place, as after an election or a restart"
        elif refuses:
            what = "is refused"
        self.log.emit(
            LogLevel.warn if holder.gives_way else LogLevel.error,
            "{address} registers as broker {name} {number}, which {holder} is, and {what}",
            address=new.address,
            name=new.broker_name,
            number=new.broker_id,
            holder=holder.address,
            what=what,
        )
        if refuses:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{holder.address} is broker {new.broker_name} {new.broker_id} and alive: give"
                f" {new.address} another brokerName or brokerId, or stop the other one (where it is"
                " gone without a word, wait until it counts as silent), or set"
                " refuseTakenBrokerIds=false at the name server",
            )

    def unregister(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 104: forgets a broker that was registered from the peer's host, behind what its
        connection registered before. Raises, or fails with, NO_PERMISSION where another host
        registered it."""
        header = request.header(UnRegisterBrokerRequestHeader)
        if self._of_peer.is_busy(peer):
            self._waiting.follow(peer, BrokerKey(header.cluster_name, header.broker_addr))
            return self._of_peer.run(peer, lambda: self._unregister(request, peer, header))
        return self._unregister(request, peer, header)

    def _unregister(
        self, request: RemotingCommand, peer: IPeer, header: UnRegisterBrokerRequestHeader
    ) -> RemotingCommand:
        known = self._table.living(header.cluster_name, header.broker_addr)
        if known is not None and known.broker_name == header.broker_name:
            if not is_same_host(known.owner.address, peer.address):
                self.log.warn(
                    "{peer} wanted to unregister broker {name}, which {owner} registered, and is"
                    " refused",
                    peer=peer.address,
                    name=header.broker_name,
                    owner=known.owner.address,
                )
                raise RequestError(
                    ResponseCode.NO_PERMISSION,
                    f"broker {header.broker_name} at {header.broker_addr} was registered from"
                    f" {host_of(known.owner.address)}: unregister it from there",
                )
            self._table.unregister(header.cluster_name, header.broker_addr, header.broker_name)
            self.log.info(
                "broker {name} at {address} left, says {peer}",
                name=header.broker_name,
                address=header.broker_addr,
                peer=peer.address,
            )
        return request.response()

    def data_version(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 322: whether a broker has other topics than it registered; counts as a
        heartbeat."""
        header = request.header(QueryDataVersionRequestHeader)
        asked = decode_request(DataVersion, request.body, max_values=FEW_VALUES)
        key = BrokerKey(header.cluster_name, header.broker_addr)
        known = self._table.data_version(*key)
        self._heard(key, peer)
        return request.response(
            header=QueryDataVersionResponseHeader(
                changed=known != asked or self._table.is_overruled(*key)
            ),
            body=b"" if known is None else encode_body(known),
        )

    def members(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 901: the addresses of a broker name, by id."""
        header = request.header(GetBrokerMemberGroupRequestHeader)
        group = self._table.members(header.cluster_name, header.broker_name)
        return request.response(body=encode_body(BrokerMemberGroupBody(broker_member_group=group)))

    def heartbeat(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 904: the broker is there; a stranger is answered as well."""
        header = request.header(BrokerHeartbeatRequestHeader)
        self._heard(BrokerKey(header.cluster_name, header.broker_addr), peer)
        return request.response()

    def _heard(self, key: BrokerKey, peer: IPeer) -> None:
        """Notes a sign of life, where it comes from the host that registered the broker: another
        one cannot say that it lives."""
        live = self._table.living(*key)
        if live is not None and is_same_host(live.owner.address, peer.address):
            self._table.heartbeat(*key, self._now_ms())

    def _order_topics(self) -> bytes:
        if not self._config.return_order_topic_config_to_broker:
            return b""
        return self._kv.namespace(ORDER_TOPIC_NAMESPACE) or b""


def _decode_apart(
    header: RegisterBrokerRequestHeader, data: bytes, compressed: bool
) -> RegisterBrokerBody:
    """Returns what `_decode_topics` does, but what it raises keeps nothing of what was inflated: a
    failure keeps the variables of all calls in its traceback, until the garbage collector finds
    it."""
    try:
        return _decode_topics(header, data, compressed)
    except RequestError as error:
        refusal = RequestError(error.code, error.remark)
    raise refusal


def _decode_topics(
    header: RegisterBrokerRequestHeader, data: bytes, compressed: bool
) -> RegisterBrokerBody:
    if header.body_crc32 and header.body_crc32 != zlib.crc32(data) & 0x7FFFFFFF:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, "the registration's body is not what its bodyCrc32 says"
        )
    body = decode_registration(data, compressed=compressed) if data else RegisterBrokerBody()
    for topic in body.topic_config_serialize_wrapper.topic_config_table:
        check_name("topicName", topic)
    if len(body.filter_server_list) > MAX_FILTER_SERVERS:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"{len(body.filter_server_list)} filter servers: register at most {MAX_FILTER_SERVERS}",
        )
    for address in body.filter_server_list:
        check_name("filterServerList", address)
    return body


def _positive(timeout: int | None) -> int:
    return timeout if timeout is not None and timeout > 0 else DEFAULT_HEARTBEAT_TIMEOUT
