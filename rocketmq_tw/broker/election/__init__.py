"""The role that controllers give: a lasting id, news of the group, changes of the role.

A broker with `enableControllerMode` starts ISOLATED with its queues at what was confirmed.
`identity.py` and `enrolment.py` get its lasting id, `following.py` hears of its group (what follows
from news: `decisions.py`, as a master that cannot lead: `unfit.py`; which epochs it knows of:
`epochs.py`), `master_requests.py` is what a master asks, and `part.py` leads the broker through
these calls:

    group = GroupState(2, "10.0.0.2:10911", 7, SyncStateSet(frozenset({2}), 12))
    broker.change_role(RoleState(Role.MASTER, 0, synchronous=True, group=group))
    broker.change_role(RoleState(Role.SLAVE, 3, group=group))
    switching = broker[Replicas].switching
    switching.controller = ControllerCalls(
        propose=ask_the_controller,            # frozenset of ids -> Deferred of SyncStateSet
        renounce=elect_anew,                   # () -> Deferred: ends the epoch
        members=ask_for_members,               # () -> Deferred of a frozenset of ids and addresses
    )
    switching.apply(SyncStateSet(...))         # what the controller tells of the set meanwhile
    switching.renew(GroupState(...))           # elected once more while it is the master

`propose` fails with `RequestError` where the controller refuses and with anything else where its
answer is not known. The proposals of a process reach the controller in the order in which they were
made, each with `switching.sync_state_set.epoch`. Proposals of a process that was killed may come
late, but no other process works in its epoch (`following.py`). A set is applied once the controller
has it.
`switching.progress` is what a heartbeat tells, `switching.epochs.table` what 1007 does. An election
with an epoch that is over fails and leaves the broker isolated.

What controllers and brokers say to each other: docs/formats/controller.md; the links of masters and
slaves: docs/formats/auto-switch-ha.md.
"""
