"""Asks or tells several servers, one after the other, where any of them may be down; or brokers of
which some have no master."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

import attrs

from rocketmq_tw.admin.tool import Servers, explain, explain_at, fail, warn
from rocketmq_tw.client.each import at_each
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.route import MASTER_ID, BrokerData
from rocketmq_tw.wire.errors import WireError

T = TypeVar("T")

#: Of changes that leave servers with nothing to say.
NO_REMARKS: Mapping[str, str] = MappingProxyType({})
#: What servers of stock may leave in an answer that is no failure.
_SAYS_NOTHING = ("", "not set any response code")


@attrs.frozen
class ServerAnswer(Generic[T]):
    """What a server said: its value, or None with the error that says why there is none."""

    address: str
    value: T | None
    error: str | None


async def ask_each(
    servers: Servers,
    addresses: Iterable[str],
    ask: Callable[[str], Awaitable[T]],
    *,
    all_may_fail: bool = False,
) -> list[ServerAnswer[T]]:
    """Asks one server after the other and returns their answers in that order. One that does not
    answer, or with an error, is `missing` from then on, and not waited for once more; raises why
    where none answers, unless `all_may_fail`."""
    answers: list[ServerAnswer[T]] = []
    failures: dict[str, Exception] = {}
    for address in addresses:
        silent = servers.missing.get(address)
        try:
            if isinstance(silent, RemotingError):
                raise silent
            value = await ask(address)
        except (ClientError, RemotingError, WireError) as error:
            failures[address] = error
            answers.append(ServerAnswer(address, None, explain_at(address, error)))
        else:
            answers.append(ServerAnswer(address, value, None))
    if failures and len(failures) == len(answers) and not all_may_fail:
        raise next(iter(failures.values()))
    for address, failure in failures.items():
        servers.miss(address, failure)
    return answers


async def told_by_each(
    servers: Servers,
    addresses: Iterable[str],
    ask: Callable[[str], Awaitable[T | None]],
    *,
    all_may_fail: bool = False,
) -> list[T]:
    """Returns the answers of the servers that have one, those without None; asks as `ask_each`
    does."""
    answers = await ask_each(servers, addresses, ask, all_may_fail=all_may_fail)
    return [answer.value for answer in answers if answer.value is not None]


async def on_each(
    targets: Iterable[str],
    change: Callable[[str], Awaitable[object]],
    said: Mapping[str, str] = NO_REMARKS,
) -> list[str]:
    """Makes a change at one address after the other and returns them; ends the command behind the
    last where one is down or refuses, with the ones that are done. What these have to say of it,
    `said` by address, which `change` fills, is told in front on stderr."""
    try:
        return await at_each(targets, change)
    except (ClientError, RemotingError) as error:
        for address, remark in remarks_of(said).items():
            warn(f"{address}: {remark}")
        fail(explain(error), error)


def remarks_of(said: Mapping[str, str]) -> dict[str, str]:
    """Returns what servers, by address, said of a change, without those that said nothing."""
    return {address: remark for address, remark in said.items() if remark not in _SAYS_NOTHING}


def unfinished(error: Exception, done: Iterable[str]) -> str:
    """Makes the text for a change that was made on some brokers only, before it failed."""
    before = ", ".join(done)
    return f"{explain(error)}; done before that: {before}" if before else explain(error)


def masters_of(servers: Servers, brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Returns broker name to master's address. A name of which only slaves are registered is
    `missing`: they do not say what topics and groups they have, and take no changes."""
    found = {}
    for data in brokers:
        if MASTER_ID in data.broker_addrs:
            found[data.broker_name] = data.broker_addrs[MASTER_ID]
        else:
            servers.miss(data.broker_name, no_master(data.broker_name))
    return found


def no_master(broker_name: str) -> ClientError:
    """Makes the error for a broker name of which only slaves are registered."""
    return ClientError(f"{broker_name} has no master now, only slaves are registered")
