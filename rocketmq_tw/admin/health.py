"""health: what is wrong with a cluster, in one look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
import rich_click as click
from click.exceptions import Exit

from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.route import MASTER_ID, BrokerData, ClusterInfo
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.codes import ResponseCode

#: How full a disk may be: brokers delete messages early above the first, and refuse sends at 0.9.
DISK_WARNING, DISK_ERROR = 0.75, 0.85
#: Milliseconds that the oldest waiting send may wait.
SLOW_SENDS_MS = 200

_ERROR, _WARNING = "error", "warning"


@attrs.frozen
class Problem:
    """Something that is wrong with a server."""

    level: str
    where: str
    what: str


_PROBLEMS = (Column("Level", "level"), Column("Where", "where"), Column("What", "what"))


@click.command("health")
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Only this cluster.")
@click.pass_obj
def health(tool: Tool, cluster: str | None) -> None:
    """Says what is wrong with name servers and brokers; the exit status is 1 where an error is."""
    problems: list[Problem] = []

    async def work(servers: Servers) -> Report:
        problems[:] = await _look(servers, cluster)
        rows = [attrs.asdict(problem) for problem in problems]
        healthy = not any(problem.level == _ERROR for problem in problems)
        line = "healthy" if not rows else "not healthy" if not healthy else "healthy, but see above"
        listings = [Listing(_PROBLEMS, rows)] if rows else []
        return Report({"healthy": healthy, "problems": rows}, listings, [line])

    tool.report(work)
    if any(problem.level == _ERROR for problem in problems):
        raise Exit(1)


async def _look(servers: Servers, cluster: str | None) -> list[Problem]:
    problems: list[Problem] = []
    told: dict[str, ClusterInfo] = {}
    for address in servers.admin.names.addresses:
        try:
            told[address] = await servers.admin.cluster_info_of(address)
        except (RemotingError, ClientError) as error:
            problems.append(Problem(_ERROR, address, f"the name server does not answer: {error}"))
    if not told:
        return problems
    first, *others = told
    for address in others:
        if _brokers_of(told[address]) != _brokers_of(told[first]):
            what = f"the name server knows other brokers than {first} does"
            problems.append(Problem(_WARNING, address, what))
    info = told[first]
    if cluster is not None and cluster not in info.cluster_addr_table:
        problems.append(Problem(_ERROR, cluster, "no broker of this cluster is registered"))
    elif not info.broker_addr_table:
        problems.append(Problem(_ERROR, first, "no broker is registered: start one"))
    for name, data in sorted(info.broker_addr_table.items()):
        if cluster in (None, data.cluster) or name in info.cluster_addr_table.get(
            cluster or "", ()
        ):
            problems += await _look_at(servers, data)
    return problems


def _brokers_of(info: ClusterInfo) -> dict[str, dict[int, str]]:
    return {name: data.broker_addrs for name, data in info.broker_addr_table.items()}


async def _look_at(servers: Servers, data: BrokerData) -> list[Problem]:
    """Looks at the brokers of a name."""
    problems = []
    if MASTER_ID not in data.broker_addrs:
        what = f"no master is registered, only slaves ({len(data.broker_addrs)}): sends fail"
        problems.append(Problem(_ERROR, data.broker_name, what))
    for broker_id, address in sorted(data.broker_addrs.items()):
        where = f"{data.broker_name} {broker_id} ({address})"
        try:
            table = (await servers.admin.runtime_info(address)).table
        except (RemotingError, ClientError) as error:
            problems.append(Problem(_ERROR, where, f"the broker does not answer: {error}"))
            continue
        problems += judge(where, broker_id, table)
        if broker_id == MASTER_ID and len(data.broker_addrs) > 1:
            problems += judge_slaves(
                where, len(data.broker_addrs) - 1, await _replication(servers, address)
            )
    return problems


def judge(where: str, broker_id: int, table: Mapping[str, str]) -> Iterator[Problem]:
    """Yields what is wrong with a broker that says this of itself."""
    if broker_id == MASTER_ID and table.get("brokerActive", "true") != "true":
        yield Problem(_ERROR, where, "the master is not active: it takes no messages")
    for key, what in (("commitLogDiskRatio", "log"), ("consumeQueueDiskRatio", "queues")):
        ratio = _number(table.get(key))
        if ratio >= DISK_WARNING:
            level = _ERROR if ratio >= DISK_ERROR else _WARNING
            yield Problem(level, where, f"the disk of the {what} is {100 * ratio:.0f}% full")
    waits = _number(table.get("sendThreadPoolQueueHeadWaitTimeMills"))
    if waits >= SLOW_SENDS_MS:
        yield Problem(_WARNING, where, f"sends wait for {waits:.0f} ms")


async def _replication(servers: Servers, master: str) -> HARuntimeInfo | None:
    try:
        return await servers.admin.ha_status(master)
    except BrokerError as error:
        # 4.9's brokers do not know the request.
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return None


def judge_slaves(where: str, slaves: int, info: HARuntimeInfo | None) -> Iterator[Problem]:
    if info is None:
        return
    connected = len(info.ha_connection_info)
    if connected < slaves:
        what = f"{slaves} slaves are registered, and {connected} of them copy the log"
        yield Problem(_WARNING, where, what)
    for slave in info.ha_connection_info:
        if not slave.in_sync:
            what = f"the slave {slave.addr} is {slave.diff} bytes behind"
            yield Problem(_WARNING, where, what)


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0
