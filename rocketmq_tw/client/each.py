"""A change that several servers are to make."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.errors import WireError


class UnfinishedError(ClientError):
    """Some servers made a change that others did not: `failures`, address to reason, and `done`,
    the addresses of those that made it."""

    def __init__(self, failures: Mapping[str, Exception], done: Sequence[str]) -> None:
        super().__init__(failures, done)
        self.failures = failures
        self.done = done

    def __str__(self) -> str:
        # Texts begin with the address; what is wrong with a call is wrong for all of them.
        alike: dict[str, list[str]] = {}
        for address, error in self.failures.items():
            reason = str(error).rstrip(".")
            who = [address] if reason.startswith(address) else [""]
            alike.setdefault(reason.removeprefix(address), []).extend(who)
        texts = [", ".join(filter(None, who)) + reason for reason, who in alike.items()]
        if self.done:
            texts.append(f"done on {', '.join(self.done)}")
        return "; ".join(texts)


async def at_each(
    addresses: Iterable[str], change: Callable[[str], Awaitable[object]]
) -> list[str]:
    """Makes a change at one server after the other, also behind one that is down or refuses, and
    returns their addresses. Raises the reason where there is one server, `UnfinishedError` where
    not all of several made it."""
    done: list[str] = []
    failures: dict[str, Exception] = {}
    for address in addresses:
        try:
            await change(address)
        except (ClientError, RemotingError, WireError) as error:
            failures[address] = error
        else:
            done.append(address)
    if not failures:
        return done
    if len(failures) == 1 and not done:
        (reason,) = failures.values()
        raise reason
    raise UnfinishedError(failures, done)
