"""The rules beyond the recorded conversation: what stock lets pass, elections, the books."""

from typing import Any

import pytest

from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.controller.core import decisions
from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.election import CandidateStanding, elect
from rocketmq_tw.controller.core.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ControllerEvent,
    ElectMaster,
    EventError,
    UpdateBrokerAddress,
    decode_event,
    encode_event,
)
from rocketmq_tw.controller.core.live_brokers import MAX_STRANGERS, LiveBrokers, ReplicaKey
from rocketmq_tw.controller.core.reads import (
    MAX_SHOWN,
    groups_to_reelect,
    next_broker_id,
    sync_state_data,
)
from rocketmq_tw.controller.core.requests import (
    MAX_NAMES_BYTES,
    MAX_SET_BYTES,
    MAX_SET_MEMBERS,
    read_requests,
    write_requests,
)
from rocketmq_tw.controller.core.state import ControllerState, Replica, ReplicaTable, SyncState
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.controller import (
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
)

ELECT = RequestCode.CONTROLLER_ELECT_MASTER


class Alive:
    """Who is alive, by id, at the addresses of `state_of`."""

    hears_strangers = True

    def __init__(self, **standings: tuple[int, int, int]) -> None:
        self.standings = {
            int(name[1:]): CandidateStanding(*values) for name, values in standings.items()
        }

    def standing(self, cluster: str, name: str, broker_id: int) -> CandidateStanding | None:
        return self.standings.get(broker_id) if cluster == "C" else None

    def address(self, cluster: str, name: str, broker_id: int) -> str:
        alive = self.standing(cluster, name, broker_id)
        return "" if alive is None else f"127.0.0.1:{broker_id}"

    def speaks_from_elsewhere(self, cluster: str, name: str, broker_id: int) -> bool:
        return False

    def gone_ms(self, cluster: str, name: str, broker_id: int) -> int | None:
        return None


ALL = Alive(b1=(1, 10, 1), b2=(1, 10, 1), b3=(1, 10, 1))


def state_of(*, master: int | None = 1, members: tuple[int, ...] = (1, 2)) -> ControllerState:
    replicas = {number: Replica(f"127.0.0.1:{number}", f"code{number}") for number in (1, 2, 3)}
    sync = SyncState("C", master, 4, frozenset(members), 6)
    return ControllerState({"g": ReplicaTable("C", replicas, 4)}, {"g": sync})


def ask(
    state: ControllerState, code: int, life: Any = ALL, *, unclean: bool = False, **fields: object
) -> Decision:
    config = ControllerConfig(enable_elect_unclean_master=unclean)
    command = RemotingCommand(code, ext_fields={k: str(v) for k, v in fields.items()})
    return write_requests(config)[code](command)(state, life)


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            {"appliedBrokerId": 4, "registerCheckCode": "a;b"},
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
        ),
        (
            RequestCode.CONTROLLER_REGISTER_BROKER,
            {"brokerId": 1, "brokerAddress": "127.0.0.1:9"},
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        ),
        (
            RequestCode.CONTROLLER_ELECT_MASTER,
            {"brokerId": 2, "designateElect": "true"},
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
        ),
        (
            RequestCode.CLEAN_BROKER_DATA,
            {"brokerControllerIdsToClean": "1"},
            ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
        ),
        (
            RequestCode.CLEAN_BROKER_DATA,
            {"isCleanLivingBroker": "true"},
            ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
        ),
    ],
)
def test_a_foreign_cluster_changes_nothing(
    code: int, fields: dict[str, object], expected: int
) -> None:
    decision = ask(state_of(), code, brokerName="g", clusterName="foreign", **fields)
    assert (decision.code, decision.events) == (expected, ())
    assert decision.remark


@pytest.mark.parametrize("broker_id", [0, -1, -(2**63)])
def test_an_id_below_the_first_is_not_given(broker_id: int) -> None:
    code = RequestCode.CONTROLLER_APPLY_BROKER_ID
    fields = {"clusterName": "C", "appliedBrokerId": broker_id, "registerCheckCode": "a;b"}
    for name in ("g", "new"):
        decision = ask(state_of(), code, brokerName=name, **fields)
        assert decision.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        assert decision.events == ()


@pytest.mark.parametrize(
    ("alive", "address", "expected"),
    [
        (ALL, "127.0.0.1:9", ResponseCode.CONTROLLER_BROKER_ID_INVALID),
        (ALL, "127.0.0.1:2", ResponseCode.SUCCESS),
        (Alive(b1=(1, 10, 1)), "127.0.0.1:9", ResponseCode.SUCCESS),
        (Alive(), "", ResponseCode.CONTROLLER_INVALID_REQUEST),
    ],
    ids=["alive elsewhere", "alive there", "not alive", "nowhere"],
)
def test_the_address_of_a_living_broker_is_its_own(
    alive: Alive, address: str, expected: int
) -> None:
    fields = {"clusterName": "C", "brokerId": 2, "brokerAddress": address}
    decision = ask(
        state_of(), RequestCode.CONTROLLER_REGISTER_BROKER, alive, brokerName="g", **fields
    )
    assert decision.code == expected
    assert bool(decision.events) == (expected == ResponseCode.SUCCESS and address[-1] == "9")


def test_an_id_taken_before_its_turn_keeps_nobody_out() -> None:
    def application(number: int, check: str) -> Decision:
        fields = {"clusterName": "C", "appliedBrokerId": number, "registerCheckCode": check}
        return ask(state, RequestCode.CONTROLLER_APPLY_BROKER_ID, brokerName="g", **fields)

    state = state_of()
    for event in application(5, "stranger;1").events:
        state.apply(event)
    for expected in (6, 7):
        fields = GetNextBrokerIdRequestHeader(cluster_name="C", broker_name="g")
        header = next_broker_id(state, fields).header
        assert isinstance(header, GetNextBrokerIdResponseHeader)
        assert header.next_broker_id == expected
        (event,) = application(expected, f"new;{expected}").events
        state.apply(event)


def test_what_anybody_may_make_has_an_end() -> None:
    def application(state: ControllerState, name: str, number: int, check: str = "a;b") -> Decision:
        return ask(
            state,
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            clusterName="C",
            brokerName=name,
            appliedBrokerId=number,
            registerCheckCode=check,
        )

    for decision in (
        application(state_of(), "n" * (decisions.MAX_TEXT + 1), 1),
        application(state_of(), "", 1),
        application(state_of(), "g", 4, "x" * (decisions.MAX_REGISTER_CODE + 1)),
    ):
        assert decision.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    full = state_of()
    for number in range(decisions.MAX_GROUPS):
        full.replica_tables.setdefault(f"g{number}", ReplicaTable("C", {1: Replica("", "")}))
    assert application(full, "new", 1).code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert application(full, "g", 4).code == ResponseCode.SUCCESS
    crowded = state_of()
    table = crowded.replica_tables["g"]
    table.replicas |= {number: Replica("", "") for number in range(decisions.MAX_REPLICAS)}
    assert application(crowded, "new", 1).code == ResponseCode.CONTROLLER_INVALID_REQUEST
    table.replicas[1] = Replica("a", "a;b")
    assert application(crowded, "g", 1).code == ResponseCode.SUCCESS


def test_an_answer_about_too_many_replicas_is_refused() -> None:
    state = state_of()
    assert sync_state_data(state, ["g", "g", "?"], ALL).code == ResponseCode.SUCCESS
    many = {number: Replica("", "") for number in range(MAX_SHOWN + 1)}
    state.replica_tables["g"].replicas |= many
    assert sync_state_data(state, ["g"], ALL).code == ResponseCode.SYSTEM_ERROR
    assert sync_state_data(state, ["?"], ALL).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        (RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, MAX_SET_BYTES),
        (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, MAX_NAMES_BYTES),
    ],
)
def test_a_body_beyond_any_need_is_refused_unread(code: int, limit: int) -> None:
    parse = (write_requests(ControllerConfig()) | read_requests())[code]
    fields = {"brokerName": "g", "masterEpoch": "1"}
    with pytest.raises(RequestError, match="send at most"):
        parse(RemotingCommand(code, ext_fields=fields, body=b"[" * (limit + 1)))


def test_a_set_of_more_brokers_than_any_has_is_refused() -> None:
    parse = write_requests(ControllerConfig())[RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET]
    fields = {"brokerName": "g", "masterBrokerId": "1", "masterEpoch": "1"}
    ids = list(range(MAX_SET_MEMBERS + 1))
    for taken, members in ((True, ids[1:]), (False, ids)):
        body = f'{{"syncStateSet":{members},"syncStateSetEpoch":1}}'.encode()
        command = RemotingCommand(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, ext_fields=fields, body=body
        )
        if taken:
            parse(command)
        else:
            with pytest.raises(RequestError, match=f"at most {MAX_SET_MEMBERS}"):
                parse(command)


def test_the_first_master_is_one_of_the_group() -> None:
    state = state_of(master=None, members=())
    state.sync_states["g"] = SyncState("C")
    stranger = ask(state, RequestCode.CONTROLLER_ELECT_MASTER, brokerName="g", brokerId=9)
    assert stranger.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED and not stranger.events
    first = ask(state, RequestCode.CONTROLLER_ELECT_MASTER, brokerName="g", brokerId=3)
    assert first.code == ResponseCode.SUCCESS and first.events


def test_the_set_of_before_is_back_where_a_master_never_began_its_epoch() -> None:
    state = state_of(master=1, members=(1, 2, 3))

    def carry_out(life: Any = ALL, **fields: object) -> None:
        for event in ask(state, ELECT, life, brokerName="g", **fields).events:
            state.apply(event)

    dead = Alive(b2=(1, 10, 1), b3=(1, 10, 1))
    carry_out(dead)
    sync = state.sync_states["g"]
    assert (sync.master, sync.master_epoch, sync.members) == (2, 5, {2})
    end = {"brokerId": -1, "designateElect": True, "neverBegun": True}
    # Of another epoch nobody knows that.
    carry_out(dead, **end, masterEpoch=4)
    carry_out(dead, **end)
    assert (sync.master, sync.members) == (None, {2})
    carry_out(dead, brokerId=2)
    assert (sync.master, sync.master_epoch, sync.members) == (2, 7, {2})
    state = state_of(master=1, members=(1, 2, 3))
    carry_out(dead)
    carry_out(dead, **end, masterEpoch=5)
    sync = state.sync_states["g"]
    assert (sync.master, sync.master_epoch, sync.members) == (None, 6, {1, 2, 3})
    carry_out(Alive(b3=(1, 10, 1)), brokerId=3)
    assert (sync.master, sync.members) == (3, {3})


def test_a_set_that_the_master_has_changed_stays() -> None:
    state = state_of(master=1, members=(1, 2, 3))
    for life, fields in (
        (Alive(b2=(1, 10, 1)), {}),
        (ALL, {"brokerId": -1, "designateElect": True, "neverBegun": True, "masterEpoch": 5}),
    ):
        for event in ask(state, ELECT, life, brokerName="g", **fields).events:
            state.apply(event)
        if not fields:
            state.apply(AlterSyncStateSet(broker_name="g", new_sync_state_set=frozenset({2, 3})))
    assert state.sync_states["g"].members == {2, 3}


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (3, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
        (4, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE),
        (5, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
    ],
)
def test_a_deposition_ends_the_epoch_that_it_names(epoch: int, expected: int) -> None:
    decision = ask(
        state_of(),
        RequestCode.CONTROLLER_ELECT_MASTER,
        brokerName="g",
        brokerId=-1,
        designateElect="true",
        masterEpoch=epoch,
    )
    assert decision.code == expected
    assert bool(decision.events) == (epoch == 4)


@pytest.mark.parametrize("unclean", [False, True])
def test_outside_of_the_set_only_an_unclean_election_looks(unclean: bool) -> None:
    life = Alive(b3=(1, 1, 1))
    decision = ask(
        state_of(), RequestCode.CONTROLLER_ELECT_MASTER, life, unclean=unclean, brokerName="g"
    )
    (event,) = decision.events
    assert isinstance(event, ElectMaster)
    assert event.new_master_broker_id == (3 if unclean else None)
    expected = ResponseCode.SUCCESS if unclean else ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert decision.code == expected


@pytest.mark.parametrize(
    ("life", "circles", "old", "designated", "elected"),
    [
        # the old one stays where it lives
        (Alive(b1=(1, 1, 9), b2=(9, 9, 0)), [[1, 2]], 1, None, 1),
        (Alive(b1=(1, 1, 9), b2=(9, 9, 0)), [[1, 2]], 1, 1, 1),
        # unless another one is designated, which must be alive and in a circle
        (Alive(b1=(1, 1, 9), b2=(1, 1, 0)), [[1, 2]], 1, 2, 2),
        (Alive(b1=(1, 1, 9)), [[1, 2]], 1, 2, None),
        (Alive(b1=(1, 1, 9), b2=(1, 1, 0)), [[1]], 1, 2, None),
        (Alive(b1=(1, 1, 9), b2=(1, 1, 0)), [[1], [1, 2]], 1, 2, 2),
        # epoch, then offset, then priority, then id
        (Alive(b2=(2, 1, 9), b3=(1, 9, 0)), [[1, 2, 3]], 1, None, 2),
        (Alive(b2=(2, 1, 0), b3=(2, 2**40, 9)), [[1, 2, 3]], 1, None, 3),
        (Alive(b2=(2, 1, 3), b3=(2, 1, 2)), [[1, 2, 3]], 1, None, 3),
        (Alive(b2=(2, 1, 2), b3=(2, 1, 2)), [[3, 2]], None, None, 2),
        # the first circle with somebody alive decides
        (Alive(b2=(1, 1, 9), b3=(9, 9, 0)), [[1, 2], [1, 2, 3]], 1, None, 2),
        (Alive(b3=(9, 9, 0)), [[1, 2], [1, 2, 3]], 1, None, 3),
        (Alive(), [[1, 2], [1, 2, 3]], 1, None, None),
    ],
)
def test_who_is_elected(
    life: Any, circles: Any, old: int | None, designated: int | None, elected: int | None
) -> None:
    assert elect(life, "C", "g", circles, old, designated) == elected


@pytest.mark.parametrize(
    ("master", "life", "expected"),
    [
        (1, ALL, []),
        (1, Alive(b3=(1, 1, 1)), ["g"]),
        (1, Alive(), []),
        (None, ALL, []),
    ],
)
def test_groups_whose_master_is_gone_are_found(master: Any, life: Any, expected: Any) -> None:
    assert list(groups_to_reelect(state_of(master=master), life)) == expected


@pytest.mark.parametrize(
    "event",
    [
        AlterSyncStateSet(broker_name="?", new_sync_state_set=frozenset((1,))),
        ElectMaster(broker_name="?", new_master_elected=True, new_master_broker_id=1),
        ElectMaster(broker_name="g", new_master_elected=True),
        CleanBrokerData(broker_name="?", broker_id_set_to_clean=frozenset((1,))),
        CleanBrokerData(broker_name="?"),
        UpdateBrokerAddress(broker_name="?", broker_id=1, broker_address="x"),
        UpdateBrokerAddress(broker_name="g", broker_id=9, broker_address="x"),
        ApplyBrokerId(
            cluster_name="D", broker_name="g", new_broker_id=1, register_check_code="other"
        ),
    ],
)
def test_an_event_that_no_longer_fits_changes_nothing(event: ControllerEvent) -> None:
    state = state_of()
    state.apply(event)
    assert state == state_of()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x00\x03",
        b"\x00\x04{}",
        b"\x00\x07{}",
        b"\x00\x03{",
        b"\x00\x03[]",
        b'\x00\x03{"brokerName":"g"}',
        b'\x00\x03{"brokerName":"g","newMasterElected":"no"}',
        b'\x00\x01{"brokerName":"g","newSyncStateSet":[1,"x"]}',
        b"\x00\x03" + b"[" * 100_000,
        b"\x00\x03\xff\xfe",
    ],
)
def test_bytes_that_are_no_event_are_told_apart(body: bytes) -> None:
    with pytest.raises(EventError):
        decode_event(body)


def test_unknown_fields_of_an_event_are_passed_over() -> None:
    body = b'\x00\x03{"brokerName":"g","newMasterElected":false,"since":"6.0"}'
    event = decode_event(body)
    assert event == ElectMaster(broker_name="g", new_master_elected=False)
    assert encode_event(event).startswith(b'\x00\x03{"brokerName":"g","eventType"')


class Books:
    """The books with a clock that stands still unless a test moves it."""

    def __init__(self, known: bool = True) -> None:
        self.now = 0
        self.known = known
        self.live = LiveBrokers(lambda: self.now, lambda key: self.known)

    def beat(self, broker_id: int, owner: str, *standing: int, timeout: int | None = 100) -> bool:
        key = ReplicaKey("C", "g", broker_id)
        return self.live.heartbeat(key, owner, CandidateStanding(*standing), timeout)

    def alive(self, broker_id: int) -> bool:
        return self.live.standing("C", "g", broker_id) is not None


def test_a_silent_broker_is_dead_before_anybody_looks() -> None:
    books = Books()
    books.beat(1, "one")
    books.now = 100
    assert books.alive(1) and books.live.expire() == []
    books.now = 101
    assert not books.alive(1)
    assert books.live.expire() == [(ReplicaKey("C", "g", 1), "one")]
    assert books.live.lose("one") == []


def test_a_heartbeat_that_names_no_timeout_has_stocks() -> None:
    books = Books()
    books.beat(1, "one", timeout=None)
    books.now = 10_000
    assert books.alive(1)
    books.now = 10_001
    assert not books.alive(1)


def test_a_broker_is_not_gone_with_a_connection_that_is_not_its_own() -> None:
    books = Books()
    books.beat(1, "own")
    books.now = 50
    books.beat(1, "other", timeout=1)
    books.now = 60
    books.beat(1, "other", timeout=1)
    assert books.live.lose("other") == []
    assert books.alive(1)
    assert books.live.lose("own") == [ReplicaKey("C", "g", 1)]
    assert not books.alive(1)


def test_a_broker_moves_to_a_new_connection_once_the_old_one_is_silent() -> None:
    books = Books()
    books.beat(1, "old")
    books.beat(2, "old")
    for books.now in (60, 101):
        books.beat(1, "new")
    assert books.live.lose("old") == [ReplicaKey("C", "g", 2)]
    assert books.alive(1) and not books.alive(2)
    assert books.live.lose("new") == [ReplicaKey("C", "g", 1)]
    assert not books.alive(1)


@pytest.mark.parametrize("timeout", [0, -1, -(2**63)])
def test_a_timeout_that_nobody_can_keep_counts_as_none(timeout: int) -> None:
    books = Books()
    books.beat(1, "one", timeout=timeout)
    books.now = 10_000
    assert books.alive(1)
    assert books.live.expire() == []


def test_a_standing_never_goes_back_but_for_its_priority() -> None:
    books = Books()
    for heartbeat in ((2, 50, 3), (2, 40, 2), (1, 900, 1), (2, 60, 5), (3, 1, 4)):
        books.beat(1, "one", *heartbeat)
    assert books.live.standing("C", "g", 1) == CandidateStanding(3, 1, 4)
    books.beat(1, "one", 3, 0, 9)
    assert books.live.standing("C", "g", 1) == CandidateStanding(3, 1, 9)


def test_where_a_broker_is_says_its_own_connection() -> None:
    books, key = Books(), ReplicaKey("C", "g", 1)
    for owner, address in (("own", "a:1"), ("other", "b:1")):
        books.live.heartbeat(key, owner, CandidateStanding(), 100, address)
    assert books.live.address(*key) == "a:1"
    books.live.lose("own")
    assert books.live.address(*key) == ""


def test_strangers_find_room_up_to_a_limit_and_those_we_know_always() -> None:
    books = Books(known=False)
    assert all(books.beat(number, "s") for number in range(MAX_STRANGERS))
    assert not books.beat(-1, "s")
    assert books.beat(5, "s")
    books.known = True
    assert books.beat(-1, "s")
    books.known = False
    books.live.lose("s")
    assert books.beat(-2, "s")


def test_an_id_is_not_given_again_after_all_in_sync_were_cleaned_away() -> None:
    state = state_of(master=None, members=(1,))
    given = {1, 2, 3}
    asked = GetNextBrokerIdRequestHeader(cluster_name="C", broker_name="g")
    state.apply(CleanBrokerData(broker_name="g", broker_id_set_to_clean=frozenset((1,))))
    for number in range(3):
        header = next_broker_id(state, asked).header
        assert isinstance(header, GetNextBrokerIdResponseHeader)
        broker_id = header.next_broker_id
        assert broker_id not in given, f"{broker_id} is somebody's"
        given.add(broker_id)
        state.apply(
            ApplyBrokerId(
                cluster_name="C",
                broker_name="g",
                new_broker_id=broker_id,
                register_check_code=f"new{number}",
            )
        )
    # As in stock: who was not in sync is forgotten as well.
    assert state.replica_tables["g"].replicas.keys() == {4, 5, 6}
