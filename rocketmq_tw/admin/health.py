"""health: what is wrong with a cluster, in one look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

import attrs
import click
from click.exceptions import Exit

from rocketmq_tw.admin.output import Column, Listing, Report, number_of
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.route import MASTER_ID, ClusterInfo
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.permissions import is_readable, is_writable

#: How full a disk may be: brokers delete messages early above the first, and refuse sends at 0.9.
DISK_WARNING, DISK_ERROR = 0.75, 0.85
#: Milliseconds that the oldest waiting send may wait.
SLOW_SENDS_MS = 200

#: The key of a broker's configuration that puts its log into a DLedger group.
_DLEDGER_KEY = "enableDLegerCommitLog"
#: The key that says what clients may do at a broker, as bits.
_PERMISSION_KEY = "brokerPermission"

_ERROR, _WARNING = "error", "warning"


#: How a server fails to say how it is.
_FAILURES = (RemotingError, ClientError, WireError)


@attrs.frozen
class Problem:
    """Something that is wrong with a server."""

    level: str
    where: str
    what: str


@attrs.define
class ClusterFindings:
    """What is wrong, and how many servers were asked."""

    problems: list[Problem] = attrs.field(factory=list)
    name_servers: int = 0
    brokers: int = 0

    @property
    def is_healthy(self) -> bool:
        return not any(problem.level == _ERROR for problem in self.problems)

    def report(self) -> Report:
        rows = [attrs.asdict(problem) for problem in self.problems]
        verdict = "not healthy" if not self.is_healthy else "healthy, but see above"
        asked = (
            f"{number_of(self.name_servers, 'name server')} and"
            f" {number_of(self.brokers, 'broker')} were asked"
        )
        return Report(
            {
                "healthy": self.is_healthy,
                "problems": rows,
                "asked": {"nameServers": self.name_servers, "brokers": self.brokers},
            },
            [Listing(_PROBLEMS, rows)] if rows else [],
            [f"{verdict if rows else 'healthy'}: {asked}"],
        )


_PROBLEMS = (Column("Level", "level"), Column("Where", "where"), Column("What", "what"))


@click.command("health")
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Only this cluster.")
@click.pass_obj
def health(tool: Tool, cluster: str | None) -> None:
    """Says what is wrong with name servers and brokers; the exit status is 1 where an error is."""
    found = ClusterFindings()

    async def work(servers: Servers) -> Report:
        nonlocal found
        found = await _find_trouble(servers, cluster)
        return found.report()

    tool.report(work)
    if not found.is_healthy:
        raise Exit(1)


async def _find_trouble(servers: Servers, cluster: str | None) -> ClusterFindings:
    found = ClusterFindings()
    problems = found.problems
    told: dict[str, ClusterInfo] = {}
    for address in servers.admin.names.addresses:
        found.name_servers += 1
        try:
            told[address] = await servers.admin.cluster_info_of(address)
        except _FAILURES as error:
            problems.append(Problem(_ERROR, address, _failure(error)))
    if not told:
        return found
    first, *others = told
    for address in others:
        if _brokers_of(told[address]) != _brokers_of(told[first]):
            what = f"the name server knows other brokers than {first} does"
            problems.append(Problem(_WARNING, address, what))
    infos = told.values()
    if cluster is not None and not any(cluster in info.cluster_addr_table for info in infos):
        problems.append(Problem(_ERROR, cluster, "no broker of this cluster is registered"))
    elif not any(info.broker_addr_table for info in infos):
        problems.append(Problem(_ERROR, first, "no broker is registered: start one"))
    groups = sorted(_members(infos, cluster).items())
    for name, members in servers.status.each(groups, "broker name"):
        found.brokers += len({address for _, address in members})
        problems += await _look_at(servers, name, members)
    return found


def _members(told: Iterable[ClusterInfo], cluster: str | None) -> dict[str, set[tuple[int, str]]]:
    """Returns broker name to the ids and addresses that any name server has of it; of one cluster
    or all."""
    found: dict[str, set[tuple[int, str]]] = {}
    for info in told:
        for name, data in info.broker_addr_table.items():
            if cluster in (None, data.cluster) or name in info.cluster_addr_table.get(
                cluster or "", ()
            ):
                found.setdefault(name, set()).update(data.broker_addrs.items())
    return found


def _failure(error: Exception) -> str:
    """Says what came in place of what was asked for."""
    if isinstance(error, BrokerError):
        return f"answered {error.code}: {error.remark}"
    return f"does not answer: {error}"


def _brokers_of(info: ClusterInfo) -> dict[str, dict[int, str]]:
    return {name: data.broker_addrs for name, data in info.broker_addr_table.items()}


async def _look_at(servers: Servers, name: str, members: Set[tuple[int, str]]) -> list[Problem]:
    """Looks at the brokers of a name, by ids and addresses."""
    problems = []
    slaves = len({address for broker_id, address in members if broker_id != MASTER_ID})
    if all(broker_id != MASTER_ID for broker_id, _ in members):
        what = f"no master is registered, only slaves ({slaves}): sends fail"
        problems.append(Problem(_ERROR, name, what))
    for broker_id, address in sorted(members):
        where = f"{name} {broker_id} ({address})"
        try:
            table = (await servers.admin.runtime_info(address)).table
        except _FAILURES as error:
            problems.append(Problem(_ERROR, where, _failure(error)))
            continue
        problems += judge(where, broker_id, table)
        try:
            config = await servers.admin.broker_config(address)
        except _FAILURES as error:
            what = f"its configuration could not be asked for: {_failure(error)}"
            problems.append(Problem(_WARNING, where, what))
            config = {}
        problems += judge_permission(where, broker_id, config)
        if broker_id == MASTER_ID and slaves:
            try:
                info = await _replication(servers, address, config)
            except _FAILURES as error:
                what = f"its slaves could not be asked for: {_failure(error)}"
                problems.append(Problem(_WARNING, where, what))
            else:
                problems += judge_slaves(where, slaves, info)
    return problems


def judge(where: str, broker_id: int, table: Mapping[str, str]) -> Iterator[Problem]:
    """Yields what is wrong with a broker that says this of itself."""
    if broker_id == MASTER_ID and table.get("brokerActive", "true") != "true":
        yield Problem(_ERROR, where, "the master is not active: it takes no messages")
    # Stock's brokers do not say.
    failure = table.get("storageFailure", "")
    if failure:
        yield Problem(_ERROR, where, f"it cannot store messages: {failure}")
    for key, what in (("commitLogDiskRatio", "log"), ("consumeQueueDiskRatio", "queues")):
        ratio = _number(table.get(key))
        if ratio >= DISK_WARNING:
            level = _ERROR if ratio >= DISK_ERROR else _WARNING
            yield Problem(level, where, f"the disk of the {what} is {100 * ratio:.0f}% full")
    waits = _number(table.get("sendThreadPoolQueueHeadWaitTimeMills"))
    if waits >= SLOW_SENDS_MS:
        yield Problem(_WARNING, where, f"sends wait for {waits:.0f} ms")


def judge_permission(where: str, broker_id: int, config: Mapping[str, str]) -> Iterator[Problem]:
    """Yields what clients may not do at a broker of this configuration; nothing where that is not
    known."""
    shown = config.get(_PERMISSION_KEY, "")
    if not shown.isdecimal():
        return
    if broker_id == MASTER_ID and not is_writable(int(shown)):
        what = f"the master takes no messages: {_PERMISSION_KEY} is {shown}"
        yield Problem(_ERROR, where, what)
    if not is_readable(int(shown)):
        what = f"consumers get no messages from it: {_PERMISSION_KEY} is {shown}"
        yield Problem(_ERROR if broker_id == MASTER_ID else _WARNING, where, what)


async def _replication(
    servers: Servers, master: str, config: Mapping[str, str]
) -> HARuntimeInfo | None:
    """Returns how slaves follow a master of this configuration; None where it has nothing to say
    about that."""
    # Its slaves get the log from the Raft group, and have no link to it.
    if config.get(_DLEDGER_KEY) == "true":
        return None
    try:
        return await servers.admin.ha_status(master)
    except BrokerError as error:
        # 4.9's brokers do not know the request.
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return None


def judge_slaves(where: str, slaves: int, info: HARuntimeInfo | None) -> Iterator[Problem]:
    """Yields what is wrong with the slaves of a master that says this of them; nothing without."""
    if info is None:
        return
    connected = len(info.ha_connection_info)
    if connected < slaves:
        yield Problem(_WARNING, where, _few_copies(slaves, connected))
    for slave in info.ha_connection_info:
        if not slave.in_sync:
            what = f"the slave {slave.addr} is {number_of(slave.diff, 'byte')} behind"
            yield Problem(_WARNING, where, what)


def _few_copies(slaves: int, connected: int) -> str:
    if slaves == 1:
        return "1 slave is registered, and it does not copy the log"
    copies = {0: "none of them copies", 1: "only 1 of them copies"}
    return (
        f"{slaves} slaves are registered, and"
        f" {copies.get(connected, f'only {connected} of them copy')} the log"
    )


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
