"""The cases of proxies: stock's gRPC client 5.2.0 sends and receives."""

from __future__ import annotations

from tests.support.remoting import create_topic
from tools.bench.cases import Bench, Case, Measure, wait_for_route
from tools.bench.client import GRPC
from tools.bench.proxies import LocalProxySubject, ProxySubject, SharedProxySubject
from tools.bench.subjects import Subject

_QUEUES = 8
_BODY = 300


def _subject(bench: Bench) -> ProxySubject:
    assert isinstance(bench.subject, ProxySubject)
    return bench.subject


def _load(bench: Bench, operation: str, **arguments: object) -> dict[str, float]:
    subject = _subject(bench)
    return bench.timed(
        subject.servers,
        lambda: bench.client.run(operation, endpoint=subject.endpoint, **arguments),
    )


def _topic(bench: Bench, name: str, message_type: str = "NORMAL") -> str:
    topic = bench.new_topic(name)
    create_topic(bench.subject.broker.address, topic, _QUEUES, message_type)
    wait_for_route(bench.subject, topic)
    return topic


def _send(threads: int, *, fifo: bool = False, clients: int = 1) -> Measure:
    def measure(bench: Bench) -> dict[str, float]:
        topic = _topic(bench, "bench-send", "FIFO" if fifo else "NORMAL")
        return _load(
            bench,
            "send",
            topic=topic,
            threads=threads,
            size=_BODY,
            fifo=int(fifo),
            clients=clients,
            seconds=bench.seconds,
        )

    return measure


def _receive(bench: Bench) -> dict[str, float]:
    topic, messages = _topic(bench, "bench-receive"), bench.scaled(40_000)
    subject = _subject(bench)
    bench.client.run(
        "send", endpoint=subject.endpoint, topic=topic, threads=16, size=_BODY, count=messages
    )
    return _load(bench, "receive", topic=topic, group=topic, expect=messages, threads=8)


def _wake(bench: Bench) -> dict[str, float]:
    topic = _topic(bench, "bench-wake")
    return _load(bench, "wake", topic=topic, group=topic, count=bench.scaled(200))


def _late(bench: Bench) -> dict[str, float]:
    topic = _topic(bench, "bench-late", "DELAY")
    return _load(bench, "late", topic=topic, group=topic, count=bench.scaled(200))


def _cases(mode: str, title: str, make: type[Subject]) -> list[Case]:
    def case(name: str, what: str, measure: Measure, *, warms: bool = True) -> Case:
        return Case(
            f"{mode}-{name}", f"{title}: {what}", measure, make=make, warms=warms, generator=GRPC
        )

    return [
        *(
            case(f"send-{threads}", f"sends by {threads} threads", _send(threads))
            for threads in (1, 16, 64)
        ),
        case("fifo", "sends in order by 16 threads", _send(16, fifo=True)),
        case("receive", "receives of 32, each acknowledged, by 8 threads", _receive),
        case("wake", "a send until a waiting receive has it", _wake, warms=False),
        case("late", "a delayed message after its time", _late, warms=False),
    ]


#: These clients have 64 threads together, and a connection each: one alone would be served by one
#: of several processes.
_CLIENTS = 8
_SEVERAL = f"sends by 64 threads of {_CLIENTS} clients"
PROXY_CASES: tuple[Case, ...] = (
    *_cases("proxy", "proxy before a broker", ProxySubject),
    Case(
        "proxy-clients",
        f"proxy before a broker: {_SEVERAL}",
        _send(64, clients=_CLIENTS),
        make=ProxySubject,
        generator=GRPC,
    ),
    Case(
        "shared-proxy-clients",
        f"two proxies of ours at one port, one of stock's: {_SEVERAL}",
        _send(64, clients=_CLIENTS),
        make=SharedProxySubject,
        generator=GRPC,
    ),
    *_cases("local-proxy", "proxy in a broker's process", LocalProxySubject),
)
