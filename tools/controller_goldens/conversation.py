"""One conversation with a controller, step by step: what is asked, in an order that tells.

Each step is the JSON that the goldens keep: a name, the connection that it goes over, and the
request; or the connection that is closed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rocketmq_tw.wire.codes import RequestCode as Code

Step = dict[str, Any]

CLUSTER, GROUP, OTHER = "C", "group", "other"
ADMIN = "admin"
#: Longer than any recording or test takes.
FOREVER_MS = 3_600_000


def ask(name: str, code: int, body: Any = None, *, over: str = ADMIN, **fields: object) -> Step:
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
    return {
        "name": name,
        "over": over,
        "code": int(code),
        "fields": {key: _text(value) for key, value in fields.items()},
        "body": text,
    }


def close(connection: str) -> Step:
    return {"name": f"{connection} is gone", "close": connection}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def address(broker_id: int) -> str:
    # Nobody listens there: what the controller sends to its brokers goes nowhere.
    return f"127.0.0.1:{broker_id}"


def apply_id(name: str, broker_id: object, code: str, *, group: str = GROUP) -> Step:
    return ask(
        name,
        Code.CONTROLLER_APPLY_BROKER_ID,
        clusterName=CLUSTER,
        brokerName=group,
        appliedBrokerId=broker_id,
        registerCheckCode=code,
    )


def register(name: str, broker_id: int, at: str, *, group: str = GROUP) -> Step:
    return ask(
        name,
        Code.CONTROLLER_REGISTER_BROKER,
        clusterName=CLUSTER,
        brokerName=group,
        brokerId=broker_id,
        brokerAddress=at,
        invokeTime=1,
    )


def heartbeat(
    broker_id: int, epoch: int, offset: int, priority: int | None = None, *, group: str = GROUP
) -> Step:
    more = {} if priority is None else {"electionPriority": priority}
    return ask(
        f"heartbeat of {group} {broker_id}: epoch {epoch}, offset {offset}",
        Code.BROKER_HEARTBEAT,
        over=f"{group}-{broker_id}",
        clusterName=CLUSTER,
        brokerName=group,
        brokerAddr=address(broker_id),
        brokerId=broker_id,
        epoch=epoch,
        maxOffset=offset,
        confirmOffset=offset,
        heartbeatTimeoutMills=FOREVER_MS,
        **more,
    )


def elect(name: str, broker_id: int, *, designate: bool = False, group: str = GROUP) -> Step:
    return ask(
        name,
        Code.CONTROLLER_ELECT_MASTER,
        clusterName=CLUSTER,
        brokerName=group,
        brokerId=broker_id,
        designateElect=designate,
        invokeTime=1,
    )


def alter(
    name: str,
    ids: list[int],
    *,
    master: int,
    master_epoch: int,
    epoch: int,
    group: str = GROUP,
) -> Step:
    return ask(
        name,
        Code.CONTROLLER_ALTER_SYNC_STATE_SET,
        {"syncStateSet": ids, "syncStateSetEpoch": epoch},
        brokerName=group,
        masterBrokerId=master,
        masterEpoch=master_epoch,
        invokeTime=1,
    )


def replica_info(name: str, group: str = GROUP) -> Step:
    return ask(name, Code.CONTROLLER_GET_REPLICA_INFO, brokerName=group)


def sync_state(name: str, *groups: str) -> Step:
    return ask(name, Code.CONTROLLER_GET_SYNC_STATE_DATA, list(groups))


def next_id(name: str, group: str = GROUP) -> Step:
    code = Code.CONTROLLER_GET_NEXT_BROKER_ID
    return ask(name, code, clusterName=CLUSTER, brokerName=group)


def clean(name: str, ids: str | None = None, *, living: bool = False, group: str = GROUP) -> Step:
    fields: dict[str, Any] = {} if ids is None else {"brokerControllerIdsToClean": ids}
    return ask(
        name,
        Code.CLEAN_BROKER_DATA,
        clusterName=CLUSTER,
        brokerName=group,
        isCleanLivingBroker=living,
        invokeTime=1,
        **fields,
    )


def conversation() -> Iterator[Step]:
    yield ask("who leads", Code.CONTROLLER_GET_METADATA_INFO)
    yield from _nobody_is_known()
    yield from _ids_are_given()
    yield from _a_first_master()
    yield from _the_sync_state_set()
    yield from _elections()
    yield from _masters_that_are_gone()
    yield from _data_that_is_cleaned()
    yield from _what_is_no_request()
    yield from _what_has_no_number()
    yield from _another_cluster()


def _nobody_is_known() -> Iterator[Step]:
    yield replica_info("replica info of an unknown group")
    yield next_id("the next id of an unknown group")
    yield apply_id("an unknown group's id that is not the first", 2, "127.0.0.1:2;x")
    yield elect("election in an unknown group", 1)
    yield register("registration in an unknown group", 1, address(1))
    yield alter("set of an unknown group", [1], master=1, master_epoch=1, epoch=1)
    yield sync_state("sync state of an unknown group", GROUP)
    yield clean("cleaning an unknown group")
    yield clean("cleaning an unknown group, living brokers too", living=True)


def _ids_are_given() -> Iterator[Step]:
    yield apply_id("the first id", 1, "127.0.0.1:1;one")
    yield apply_id("the first id again with its code", 1, "127.0.0.1:1;one")
    yield apply_id("the first id with another code", 1, "127.0.0.1:1;two")
    yield apply_id("a code without an address", 2, 'é"\\;')
    yield next_id("the next id after two")
    yield apply_id("the third id", 3, "127.0.0.1:3;three")
    yield apply_id("an id beyond the next one", 9, "127.0.0.1:9;nine")
    yield next_id("the next id after a gap")
    yield replica_info("replica info before there was a master")
    yield sync_state("sync state before there was a master", GROUP)
    yield register("registration of an id that was not given", 7, address(7))
    yield register("registration without a master", 1, address(1))
    yield register("registration with a new address", 2, address(2))
    yield alter("set before there was a master", [1], master=1, master_epoch=0, epoch=0)
    yield alter("an empty set before there was a master", [], master=1, master_epoch=0, epoch=0)
    yield elect("election by a controller before there was a master", -1)


def _a_first_master() -> Iterator[Step]:
    yield apply_id("another group's first id", 1, "127.0.0.1:11;a", group=OTHER)
    yield apply_id("another group's second id", 2, "127.0.0.1:12;b", group=OTHER)
    yield elect("the first to ask is the first master", 2, group=OTHER)
    yield replica_info("replica info with a master", OTHER)
    yield register("registration while the master is silent", 1, "127.0.0.1:11", group=OTHER)
    yield heartbeat(1, 1, 100)
    yield heartbeat(2, 1, 100)
    yield heartbeat(3, 1, 100)
    yield elect("election by a broker after a failed one", 2)
    yield elect("election designated after a failed one", 2, designate=True)
    yield clean("cleaning a group without a master")
    yield apply_id("the first id, cleaned", 1, "127.0.0.1:1;one")
    yield apply_id("the second id, cleaned", 2, "127.0.0.1:2;two")
    yield apply_id("the third id, cleaned", 3, "127.0.0.1:3;three")
    yield elect("the first master", 1)
    yield elect("the first master again", 1)
    yield elect("another one while the master lives", 2)
    yield elect("a controller's election while the master lives", -1)
    yield register("registration while the master lives", 2, address(2))
    yield replica_info("replica info of a master that lives")


def _the_sync_state_set() -> Iterator[Step]:
    yield alter("the set as it is", [1], master=1, master_epoch=1, epoch=1)
    yield alter("the set as it is, of another master", [1], master=2, master_epoch=1, epoch=1)
    yield alter("a set of another master", [1, 2], master=2, master_epoch=9, epoch=9)
    yield alter("a set of an old epoch", [1, 2], master=1, master_epoch=0, epoch=9)
    yield alter("a set of a new epoch", [1, 2], master=1, master_epoch=2, epoch=9)
    yield alter("a set after another one", [1, 2], master=1, master_epoch=1, epoch=0)
    yield alter("a set with a stranger", [1, 5], master=1, master_epoch=1, epoch=1)
    yield alter("a set without the master", [2, 3], master=1, master_epoch=1, epoch=1)
    yield alter("an empty set", [], master=1, master_epoch=1, epoch=1)
    yield alter("a set of three", [3, 1, 2], master=1, master_epoch=1, epoch=1)
    yield alter("that set once more", [1, 2, 3], master=1, master_epoch=1, epoch=1)
    yield alter("a smaller set", [1, 3], master=1, master_epoch=1, epoch=2)
    yield sync_state("sync state of two groups and an unknown one", GROUP, OTHER, "none")
    yield alter(
        "with one who does not live", [1, 2], master=2, master_epoch=1, epoch=1, group=OTHER
    )


def _elections() -> Iterator[Step]:
    yield elect("the master designated", 1, designate=True)
    yield elect("one outside the set designated", 2, designate=True)
    yield elect("a stranger designated", 8, designate=True)
    yield elect("one of the set designated", 3, designate=True)
    yield replica_info("replica info after a designated election")
    yield alter("all three again", [1, 2, 3], master=3, master_epoch=2, epoch=4)
    yield heartbeat(1, 2, 500)
    yield heartbeat(2, 2, 900)
    yield heartbeat(2, 2, 300)
    yield heartbeat(1, 1, 5000)
    yield close("group-3")
    yield replica_info("the longest log is elected")


def _masters_that_are_gone() -> Iterator[Step]:
    yield heartbeat(3, 3, 10)
    yield alter("three with the new master", [1, 2, 3], master=2, master_epoch=3, epoch=6)
    yield close("group-2")
    yield replica_info("the newest epoch is elected")
    yield heartbeat(2, 4, 10, 5)
    yield heartbeat(1, 4, 10, 2)
    yield heartbeat(3, 4, 10, 1)
    yield alter("three once more", [1, 2, 3], master=3, master_epoch=4, epoch=8)
    yield close("group-3")
    yield replica_info("the lowest priority is elected")
    yield sync_state("sync state after three elections", GROUP)
    yield close("group-1")
    yield replica_info("nobody of the set is left")
    yield sync_state("the set is kept", GROUP)
    yield register("registration while there is no master", 2, address(2))
    yield elect("one outside the set asks", 2)
    yield elect("a controller asks while nobody is left", -1)
    yield heartbeat(1, 5, 10)
    yield elect("the last of the set asks", 2)
    yield elect("the last of the set asks when it lives", 1)
    yield replica_info("the last of the set is the master again")
    yield elect("nobody designated", -1, designate=True)
    yield replica_info("a designation of nobody takes the master away")
    yield elect("it asks again", 1)


def _data_that_is_cleaned() -> Iterator[Step]:
    yield clean("cleaning a group with a master")
    yield clean("cleaning one who lives", "1")
    yield clean("cleaning what is no id", "1;x")
    yield clean("cleaning one who is gone", "3")
    yield sync_state("sync state without the third", GROUP)
    yield next_id("an id that was cleaned is not given again")
    yield clean("cleaning several that are gone", "3;4;11")
    yield apply_id("an id that was cleaned is applied for", 3, "127.0.0.1:3;new")
    yield clean("cleaning ids and living brokers", "2", living=True)
    yield replica_info("all of the group is gone")
    yield next_id("its ids begin anew")
    yield clean("cleaning another group's set", "2", group=OTHER)
    yield replica_info("a group without a set", OTHER)
    yield next_id("a group without a set has its ids", OTHER)
    yield register("registration in a group without a set", 1, "127.0.0.1:11", group=OTHER)
    yield apply_id("an id of a group without a set", 1, "127.0.0.1:11;a", group=OTHER)
    yield next_id("a group that got its set again", OTHER)
    yield replica_info("the epochs began anew", OTHER)


def _what_is_no_request() -> Iterator[Step]:
    yield ask("replica info of nobody", Code.CONTROLLER_GET_REPLICA_INFO)
    yield ask("next id of nobody", Code.CONTROLLER_GET_NEXT_BROKER_ID)
    yield ask("an id for nobody", Code.CONTROLLER_APPLY_BROKER_ID, clusterName=CLUSTER)
    yield ask("registration of nobody", Code.CONTROLLER_REGISTER_BROKER, clusterName=CLUSTER)
    yield ask("election in no group", Code.CONTROLLER_ELECT_MASTER)
    yield ask("an election without a cluster", Code.CONTROLLER_ELECT_MASTER, brokerName=GROUP)
    yield ask("no set", Code.CONTROLLER_ALTER_SYNC_STATE_SET, brokerName=OTHER)
    yield ask("a broken set", Code.CONTROLLER_ALTER_SYNC_STATE_SET, "{", brokerName=OTHER)
    yield ask("sync state without names", Code.CONTROLLER_GET_SYNC_STATE_DATA)
    yield ask("sync state of no names", Code.CONTROLLER_GET_SYNC_STATE_DATA, [])
    yield ask("sync state of what is no list", Code.CONTROLLER_GET_SYNC_STATE_DATA, "{")
    yield ask("cleaning nobody", Code.CLEAN_BROKER_DATA)
    yield ask("a heartbeat of nobody", Code.BROKER_HEARTBEAT)
    yield ask(
        "a heartbeat without an id",
        Code.BROKER_HEARTBEAT,
        clusterName=CLUSTER,
        brokerName=GROUP,
        brokerAddr=address(1),
    )
    yield apply_id("an id that is no number", "one", "127.0.0.1:1;one")
    yield ask(
        "a key that may not be changed", Code.UPDATE_CONTROLLER_CONFIG, "configStorePath=/tmp/x\n"
    )
    yield ask("what a broker has", Code.GET_BROKER_EPOCH_CACHE)
    yield ask("what JRaft's members ask of each other", Code.GET_BROKER_LIVE_INFO_REQUEST)
    yield ask(
        "a key that may be changed", Code.UPDATE_CONTROLLER_CONFIG, "notifyBrokerRoleChanged=true\n"
    )


def _what_has_no_number() -> Iterator[Step]:
    group = {"clusterName": CLUSTER, "brokerName": GROUP}
    yield ask(
        "a set of a master that is no number",
        Code.CONTROLLER_ALTER_SYNC_STATE_SET,
        {"syncStateSet": [1], "syncStateSetEpoch": 1},
        brokerName=GROUP,
        masterBrokerId="x",
        masterEpoch=1,
    )
    yield ask(
        "a set that is text",
        Code.CONTROLLER_ALTER_SYNC_STATE_SET,
        {"syncStateSet": "x", "syncStateSetEpoch": 1},
        brokerName=GROUP,
        masterBrokerId=1,
        masterEpoch=1,
    )
    yield ask(
        "election by one who is no number", Code.CONTROLLER_ELECT_MASTER, **group, brokerId="x"
    )
    yield ask(
        "registration of one who is no number",
        Code.CONTROLLER_REGISTER_BROKER,
        **group,
        brokerId="x",
        brokerAddress=address(1),
    )
    yield ask("a heartbeat of one who is no number", Code.BROKER_HEARTBEAT, **group, brokerId="x")


#: What ours refuse and stock takes: docs/formats/controller.md.
FOREIGN = "D"


def _another_cluster() -> Iterator[Step]:
    own = {"clusterName": CLUSTER, "brokerName": "third"}
    foreign = {"clusterName": FOREIGN, "brokerName": "third"}
    yield apply_id("a third group's first id", 1, "127.0.0.1:21;a", group="third")
    yield elect("a third group's first master", 1, group="third")
    yield ask("the next id of a foreign cluster", Code.CONTROLLER_GET_NEXT_BROKER_ID, **foreign)
    yield ask(
        "an id for a foreign cluster",
        Code.CONTROLLER_APPLY_BROKER_ID,
        **foreign,
        appliedBrokerId=2,
        registerCheckCode="127.0.0.1:22;b",
    )
    yield ask(
        "registration by a foreign cluster",
        Code.CONTROLLER_REGISTER_BROKER,
        **foreign,
        brokerId=1,
        brokerAddress="127.0.0.1:21",
    )
    yield ask(
        "election by a foreign cluster",
        Code.CONTROLLER_ELECT_MASTER,
        **foreign,
        brokerId=1,
        designateElect=True,
    )
    yield ask(
        "a heartbeat of a foreign cluster",
        Code.BROKER_HEARTBEAT,
        over="third-1",
        **foreign,
        brokerAddr="127.0.0.1:21",
        brokerId=1,
        heartbeatTimeoutMills=FOREVER_MS,
    )
    yield ask(
        "a foreign cluster's heartbeat keeps nobody alive", Code.CONTROLLER_ELECT_MASTER, **own
    )
    yield ask(
        "cleaning by a foreign cluster",
        Code.CLEAN_BROKER_DATA,
        **foreign,
        brokerControllerIdsToClean="1",
        isCleanLivingBroker=False,
    )
