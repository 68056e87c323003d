"""The command lines of a proxy, and of a broker with a proxy in its process."""

import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import pytest
from twisted.python.usage import UsageError

from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.services import broker, proxy, standalone
from rocketmq_tw.services.options import ServerOptions

ENVIRON = {"HOME": "/home/me"}


S = TypeVar("S", bound=ServerOptions)


def parsed(kind: type[S], *arguments: str) -> S:
    options = kind(ENVIRON)
    options.parseOptions(list(arguments))
    return options


def test_a_proxy_reads_stocks_file(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text('{"proxyClusterName": "c", "namesrvAddr": "a:1", "grpcServerPort": 1}')
    config = parsed(proxy.Options, "-c", str(file), "-o", "grpcServerPort=2").loaded[ProxyConfig]
    assert (config.proxy_cluster_name, config.namesrv_addr) == ("c", "a:1")
    assert config.grpc_server_port == 2
    assert config.use_endpoint_port_from_request and not config.tls_test_mode_enable


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give -n"),
        (["-n", "a:1", "-o", "proxyMode=LOCAL"], "--enable-proxy"),
        (["-n", "a:1", "-o", "proxyMode=both"], "CLUSTER, LOCAL"),
        (["-n", "a:1", "-o", "grpcServerProt=1"], "did you mean grpcServerPort"),
    ],
)
def test_a_mistake_of_a_proxy_ends_with_one_line(arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        parsed(proxy.Options, *arguments)


@pytest.mark.parametrize("kind", [broker.Options, standalone.Options])
def test_a_broker_may_have_a_proxy(
    kind: type[broker.Options] | type[standalone.Options], tmp_path: Path
) -> None:
    assert parsed(kind).proxy is None
    file = tmp_path / "rmq-proxy.json"
    file.write_text('{"grpcServerPort": 1, "maxConnections": 7}')
    keys = ("-o", "bindAddress=127.0.0.9", "-o", "useTLS=true")
    loaded = parsed(kind, *keys, "--enable-proxy", "-pc", str(file)).proxy
    assert loaded is not None
    assert loaded[ProxyConfig].grpc_server_port == 1
    net = loaded[NettyServerConfig]
    assert (net.bind_address, net.max_connections) == ("127.0.0.9", 7)
    assert loaded[NettyClientConfig].use_tls


def test_a_proxys_file_needs_a_proxy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--enable-proxy"):
        parsed(broker.Options, "-pc", str(tmp_path))
    with pytest.raises(SystemExit, match="nowhere"):
        parsed(broker.Options, "--enable-proxy", "-pc", "/nowhere")
    file = tmp_path / "rmq-proxy.json"
    file.write_text('{"sharePorts": true}')
    with pytest.raises(SystemExit, match="sharePorts is for twistd rmq-proxy"):
        parsed(broker.Options, "--enable-proxy", "-pc", str(file))


@pytest.mark.parametrize("name", ["rmq-proxy.json", "rmq-proxy.properties"])
def test_the_samples_are_read_without_a_warning(name: str) -> None:
    file = Path(__file__).parents[3] / "etc" / "proxy" / name
    loaded = parsed(proxy.Options, "-c", str(file)).loaded
    assert not [notice for notice in loaded.notices if notice.is_warning]
    assert loaded[ProxyConfig].namesrv_addr == "127.0.0.1:9876"


@pytest.mark.parametrize(
    ("options", "loaded"),
    [
        ((), []),
        (("--enable-proxy",), ["google.protobuf"]),
        (("-o", "metricsExporterType=PROM"), ["prometheus_client", "twisted.web"]),
    ],
)
def test_a_broker_loads_what_a_proxy_and_monitoring_need_where_they_are_wanted(
    options: tuple[str, ...], loaded: list[str]
) -> None:
    """They took a quarter of the time of a start."""
    code = f"""if True:
        import sys
        from rocketmq_tw.services import broker
        options = broker.Options({ENVIRON!r})
        options.parseOptions({["-n", "127.0.0.1:1", *options]!r})
        broker.makeService(options)
        names = ("google.protobuf", "prometheus_client", "twisted.web")
        print([name for name in names if name in sys.modules])
    """
    # On a reactor of its own.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{loaded}\n")


def test_a_proxy_by_itself_loads_no_broker() -> None:
    """One took 10 MiB and more than half of the time of a start."""
    code = f"""if True:
        import sys
        from rocketmq_tw.services import proxy
        options = proxy.Options({ENVIRON!r})
        options.parseOptions(["-n", "127.0.0.1:1"])
        proxy.makeService(options)
        names = ("broker.broker", "store.message_store", "raft.node", "replication.links")
        print([name for name in names if f"rocketmq_tw.{{name}}" in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "[]\n")
