"""TLS: modes, certificates that are checked, and files that change."""

import base64
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import AcceptableCiphers, CertificateOptions, TLSVersion
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig, TlsConfig
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import ConnectionLost, RemotingError, TlsConfigError
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.net.tls_contexts import self_signed
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.network import MemoryNetwork

ADDRESS = "10.0.0.1:10911"


def network_with(config: TlsConfig, **limits) -> MemoryNetwork:
    clock = Clock()
    network = MemoryNetwork(clock)
    server = RemotingServer(clock, NettyServerConfig(**limits), tls=ServerTls(config))
    listener = server.listener()
    listener.register(1, lambda request, peer: request.response(body=request.body))
    network.listen(ADDRESS, listener.factory)
    return network


def ask(network, tls: TlsConfig | None = None, body=b"x" * 100_000):
    """What becomes of a request over TLS as `tls` says, or in the clear."""
    outcome = []
    client = RemotingClient(
        network.clock,
        NettyClientConfig(use_tls=tls is not None),
        tls=tls,
        endpoint_for=network.endpoint,
    )
    client.request(ADDRESS, RemotingCommand.request(1, body=body), 3).addBoth(outcome.append)
    network.clock.advance(0)
    network.clock.advance(3)
    return outcome[0]


@pytest.fixture
def files(tmp_path):
    """A certificate for itself and its encrypted key as PEM files: the keys that name them."""
    key, (certificate,) = self_signed()
    cert_path, key_path = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_path.write_bytes(crypto.dump_certificate(crypto.FILETYPE_PEM, certificate))
    key_path.write_bytes(
        key.to_cryptography_key().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"1234"),
        )
    )
    return {
        f"{side}_{what}": value
        for side in ("server", "client")
        for what, value in {
            "cert_path": str(cert_path),
            "key_path": str(key_path),
            "key_password": "1234",
            "trust_cert_path": str(cert_path),
        }.items()
    }


@pytest.mark.parametrize(
    ("mode", "plain_works", "tls_works"),
    [("disabled", True, False), ("permissive", True, True), ("enforcing", False, True)],
)
def test_modes(mode, plain_works, tls_works):
    network = network_with(TlsConfig(server_mode=mode))
    with capturedLogs():
        outcomes = ask(network), ask(network, TlsConfig())
    assert [isinstance(outcome, RemotingCommand) for outcome in outcomes] == [
        plain_works,
        tls_works,
    ]


def test_plaintext_refused_by_an_enforcing_server_is_logged_once():
    network = network_with(TlsConfig(server_mode="enforcing"))
    with capturedLogs() as logs:
        outcome = ask(network)
    assert outcome.check(RemotingError)
    assert len(logs) == 1 and logs[0]["peer"].startswith("127.0.0.1:")


def test_a_plain_client_of_an_enforcing_server_is_told_to_speak_tls():
    network = network_with(TlsConfig(server_mode="enforcing"))
    with capturedLogs():
        outcome = ask(network)
    assert "a server that takes TLS only" in str(outcome.value)


def test_tls_to_a_server_that_speaks_none_is_told():
    network = network_with(TlsConfig(server_mode="disabled"))
    with capturedLogs():
        outcome = ask(network, TlsConfig())
    assert "a server that speaks none (tls.server.mode=disabled)" in str(outcome.value)


def test_a_server_that_spoke_tls_and_goes_away_is_not_said_to_speak_none():
    network = network_with(TlsConfig())
    client = RemotingClient(network.clock, tls=TlsConfig(), endpoint_for=network.endpoint)
    outcomes = []
    # What is small waits for the process's reactor.
    request = RemotingCommand.request(1, body=b"x" * 100_000)
    client.request(ADDRESS, request, 3).addBoth(outcomes.append)
    network.clock.pump([0, 1])
    client.request(ADDRESS, RemotingCommand.request(1), 3).addBoth(outcomes.append)
    network.stop(ADDRESS)
    network.clock.pump([0, 1])
    answer, lost = outcomes
    assert answer.code == 0
    assert lost.check(ConnectionLost) and "TLS" not in str(lost.value)


def test_a_server_that_answered_and_goes_away_wants_no_tls():
    network = network_with(TlsConfig())
    client = RemotingClient(network.clock, endpoint_for=network.endpoint)
    outcomes = []
    for _ in range(2):
        client.request(ADDRESS, RemotingCommand.request(1), 3).addBoth(outcomes.append)
        network.clock.advance(0)
    assert [answer.code for answer in outcomes] == [0, 0]
    client.request(ADDRESS, RemotingCommand.request(1), 3).addBoth(outcomes.append)
    network.stop(ADDRESS)
    network.clock.advance(0)
    assert outcomes[2].check(ConnectionLost)
    assert "TLS" not in str(outcomes[2].value)


def test_files_and_checked_certificates_both_ways(files):
    config = TlsConfig(
        server_mode="enforcing",
        test_mode_enable=False,
        server_need_client_auth="require",
        server_auth_client=True,
        client_auth_server=True,
        **files,
    )
    network = network_with(config)
    assert ask(network, config).body == b"x" * 100_000
    with capturedLogs():
        stranger = ask(network, TlsConfig())
    assert stranger.check(RemotingError), "a client without a certificate"


@pytest.mark.parametrize(
    ("keys", "advice"),
    [
        ({}, "set tls.client.authServer=true and tls.test.mode.enable=false"),
        ({"test_mode_enable": False}, "set tls.client.authServer=true"),
    ],
)
def test_a_trust_path_alone_checks_nobody_as_in_stock_and_says_so(files, keys, advice):
    network = network_with(TlsConfig())
    with capturedLogs() as logs:
        answer = ask(
            network, TlsConfig(client_trust_cert_path=files["client_trust_cert_path"], **keys)
        )
    assert answer.body == b"x" * 100_000
    (line,) = [line for line in map(formatEvent, logs) if "trustCertPath" in line]
    assert "checks nobody" in line and line.endswith(advice)


def test_a_client_that_uses_its_files_says_nothing_of_them(files):
    with capturedLogs() as logs:
        RemotingClient(
            Clock(), tls=TlsConfig(test_mode_enable=False, client_auth_server=True, **files)
        )
        RemotingClient(Clock(), tls=TlsConfig())
    told = "\n".join(map(formatEvent, logs))
    assert "trustCertPath" not in told and "shown to no server" not in told


@pytest.mark.parametrize("test_mode", [True, False])
@pytest.mark.parametrize("wrong", ["missing", "a key", "another key"])
def test_a_client_takes_no_wrong_files_though_it_does_not_use_them(files, wrong, test_mode):
    key = Path(files["client_key_path"])
    if wrong == "another key":
        other = ec.generate_private_key(ec.SECP256R1())
        key.write_bytes(
            other.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"1234"),
            )
        )
        config = TlsConfig(test_mode_enable=test_mode, **files)
        expected = "is not the key of tls.client.certPath"
    else:
        path = str(key) if wrong == "a key" else "/no/such.pem"
        config = TlsConfig(test_mode_enable=test_mode, client_trust_cert_path=path)
        expected = "no certificate" if wrong == "a key" else "No such file"
        expected = f"tls.client.trustCertPath {path}: {expected}"
    with capturedLogs(), pytest.raises(TlsConfigError, match=expected):
        RemotingClient(Clock(), tls=config)


def test_a_client_refuses_a_server_that_it_does_not_trust(files):
    network = network_with(TlsConfig())
    config = TlsConfig(test_mode_enable=False, client_auth_server=True, **files)
    with capturedLogs():
        refused = ask(network, config)
    assert refused.check(RemotingError)
    assert "signed by nobody that is trusted" in str(refused.value)
    assert "tls.client.trustCertPath" in str(refused.value)
    assert "SSL routines" not in str(refused.value)


def test_a_client_of_a_server_that_wants_a_certificate_is_told_its_keys(files):
    config = TlsConfig(
        server_mode="enforcing",
        test_mode_enable=False,
        server_need_client_auth="require",
        server_auth_client=True,
        **files,
    )
    with capturedLogs():
        refused = ask(network_with(config), TlsConfig())
    assert "the server wants a certificate: name one in tls.client.certPath" in str(refused.value)


def test_a_client_of_a_server_without_tls_is_told_so():
    with capturedLogs():
        refused = ask(network_with(TlsConfig(server_mode="disabled")), TlsConfig())
    assert "SSL routines" not in str(refused.value)


def test_a_connection_that_says_nothing_counts_and_is_closed_when_idle():
    network = network_with(TlsConfig(), max_connections=1, server_channel_max_idle_time_seconds=120)
    silent = []
    network.connect("10.0.0.9", ADDRESS, Factory.forProtocol(Protocol)).addCallback(silent.append)
    with capturedLogs():
        assert ask(network).check(RemotingError), "over the limit"
    network.clock.pump([10] * 12)
    network.clock.advance(0)
    assert silent[0].transport.disconnected
    assert isinstance(ask(network), RemotingCommand)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"server_mode": "on"}, "tls.server.mode is 'on'"),
        ({"test_mode_enable": False}, "tls.server.certPath is not set"),
        (
            {"test_mode_enable": False, "server_cert_path": "/does/not/exist.pem"},
            "tls.server.certPath /does/not/exist.pem: No such file",
        ),
    ],
)
def test_a_wrong_key_is_named(wrong, named):
    with pytest.raises(TlsConfigError, match=named):
        ServerTls(TlsConfig(**wrong))


def test_a_wrong_password_names_the_key_file(files):
    files["server_key_password"] = "4321"
    with pytest.raises(TlsConfigError, match=r"tls\.server\.keyPath"):
        ServerTls(TlsConfig(test_mode_enable=False, **files))


def without_trusted(files, side):
    return {key: value for key, value in files.items() if key != f"{side}_trust_cert_path"}


def test_a_server_without_trusted_certificates_takes_the_system_s(files, monkeypatch):
    server = TlsConfig(
        test_mode_enable=False,
        server_need_client_auth="require",
        server_auth_client=True,
        **without_trusted(files, "server"),
    )
    client = TlsConfig(test_mode_enable=False, **files)
    with capturedLogs():
        assert ask(network_with(server), client).check(RemotingError), "it is its own issuer"
    monkeypatch.setenv("SSL_CERT_FILE", files["client_cert_path"])
    assert ask(network_with(server), client).body == b"x" * 100_000


def test_a_client_without_trusted_certificates_takes_the_system_s(files, monkeypatch):
    server = TlsConfig(test_mode_enable=False, **files)
    client = TlsConfig(
        test_mode_enable=False, client_auth_server=True, **without_trusted(files, "client")
    )
    with capturedLogs():
        assert ask(network_with(server), client).check(RemotingError), "it is its own issuer"
    monkeypatch.setenv("SSL_CERT_FILE", files["server_cert_path"])
    assert ask(network_with(server), client).body == b"x" * 100_000


def test_test_mode_promises_no_check():
    with pytest.raises(
        TlsConfigError, match=r"tls\.server\.authClient is true, but tls\.test\.mode"
    ):
        ServerTls(TlsConfig(server_auth_client=True))
    with pytest.raises(
        TlsConfigError, match=r"tls\.client\.authServer is true, but tls\.test\.mode"
    ):
        RemotingClient(
            Clock(), NettyClientConfig(use_tls=True), tls=TlsConfig(client_auth_server=True)
        )


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (
            {"server_auth_client": True},
            r"tls\.server\.authClient is true and tls\.server\.need\.client\.auth is none",
        ),
        (
            {"server_need_client_auth": "require"},
            r"tls\.server\.need\.client\.auth is require and tls\.server\.authClient is false",
        ),
        (
            {
                "server_mode": "disabled",
                "server_auth_client": True,
                "server_need_client_auth": "require",
            },
            r"tls\.server\.mode is disabled",
        ),
        (
            {"test_mode_enable": True, "server_need_client_auth": "require"},
            r"tls\.server\.need\.client\.auth is require and tls\.server\.authClient is false",
        ),
    ],
)
def test_what_checks_nobody_and_sounds_as_if_it_did_is_refused(files, keys, why):
    with pytest.raises(TlsConfigError, match=why):
        ServerTls(TlsConfig(**({"test_mode_enable": False} | files | keys)))


def test_plaintext_beside_checked_certificates_is_warned_of(files):
    checked = {"server_need_client_auth": "require", "server_auth_client": True}
    for mode, warnings in (("permissive", 1), ("enforcing", 0)):
        with capturedLogs() as logs:
            ServerTls(TlsConfig(server_mode=mode, test_mode_enable=False, **checked, **files))
        lines = [line for event in logs if "speak plaintext" in (line := formatEvent(event))]
        assert len(lines) == warnings and all("enforcing" in line for line in lines)


def test_a_key_of_another_certificate_is_refused_at_the_start(files):
    key, _ = self_signed()
    write_key(files["server_key_path"], key)
    with pytest.raises(TlsConfigError, match=r"tls\.server\.keyPath .* is not the key of"):
        ServerTls(TlsConfig(test_mode_enable=False, **files))


def made(days_before: int, days_after: int):
    """A key, and a certificate of its own that is valid so many days around now."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key, certificate_of(key, days_before, days_after)


def certificate_of(key, days_before: int, days_after: int):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=days_before))
        .not_valid_after(now + timedelta(days=days_after))
        .sign(key, hashes.SHA256())
    )


def write_pair(files, side, key, certificate):
    write_key(files[f"{side}_key_path"], crypto.PKey.from_cryptography_key(key))
    write_certificate(files[f"{side}_cert_path"], crypto.X509.from_cryptography(certificate))


AGES = [
    (
        (9, -2),
        "has expired on 20",
        "has expired: the server needs a new one in tls.server.certPath",
    ),
    ((-2, 9), "is not valid before 20", "is not valid yet: look at the clocks of both machines"),
]


@pytest.mark.parametrize(("days", "warned", "told"), AGES)
def test_a_certificate_that_is_not_valid_now_is_named(files, days, warned, told):
    write_pair(files, "server", *made(*days))
    config = TlsConfig(test_mode_enable=False, client_auth_server=True, **files)
    with capturedLogs() as logs:
        network = network_with(config)
        lines = [formatEvent(event) for event in logs]
        # It trusts exactly this one.
        refused = ask(network, config)
    assert [line for line in lines if warned in line and "tls.server.certPath" in line], lines
    assert told in str(refused.value)
    assert "trusted" not in str(refused.value)


def test_an_expired_certificate_in_place_of_a_good_one_is_warned_of(files):
    network = network_with(TlsConfig(test_mode_enable=False, **files))
    with capturedLogs() as logs:
        write_pair(files, "server", *made(9, -2))
        ask(network, TlsConfig())
    assert [line for event in logs if "has expired on" in (line := formatEvent(event))]


def test_a_client_whose_certificate_has_expired_is_told_so(files, tmp_path):
    own = {"client_cert_path": str(tmp_path / "c.pem"), "client_key_path": str(tmp_path / "c.key")}
    write_pair(own, "client", *made(9, -2))
    keys = {"server_auth_client": True, "server_need_client_auth": "require"}
    trusted = {"server_trust_cert_path": own["client_cert_path"]}
    config = TlsConfig(test_mode_enable=False, **files | own | keys | trusted)
    with capturedLogs():
        refused = ask(network_with(config), config)
    assert "our certificate has expired: name a new one in tls.client.certPath" in str(
        refused.value
    )


def test_a_weak_certificate_is_no_wrong_key(files):
    key = rsa.generate_private_key(65537, 1024)
    write_pair(files, "server", key, certificate_of(key, 1, 9))
    with pytest.raises(TlsConfigError, match=r"tls\.server\.certPath .*RSA of 2048 bits") as wrong:
        ServerTls(TlsConfig(test_mode_enable=False, **files))
    assert "not the key" not in str(wrong.value)


def write_key(path, key):
    data = key.to_cryptography_key().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"1234"),
    )
    replace(path, data)


def write_certificate(path, certificate):
    replace(path, crypto.dump_certificate(crypto.FILETYPE_PEM, certificate))


def replace(path, data):
    """As tools that renew certificates do."""
    new = Path(f"{path}.new")
    new.write_bytes(data)
    os.replace(new, path)


class Handshake(Protocol):
    """A client that does no more than a handshake, with `options`."""

    def __init__(self, options):
        self.options = options
        self.tls = self.error = None
        self.is_done = False

    def connectionMade(self):
        self.tls = SSL.Connection(self.options.getContext(), None)
        self.tls.set_connect_state()
        self.go_on()

    def dataReceived(self, data):
        self.tls.bio_write(data)
        self.go_on()

    def go_on(self):
        try:
            self.tls.do_handshake()
            self.is_done = True
        except SSL.WantReadError:
            pass
        except SSL.Error as error:
            self.error = error
        with suppress(SSL.WantReadError):
            self.transport.write(self.tls.bio_read(65536))


def shake_hands(network, options):
    found = []
    factory = Factory.forProtocol(lambda: Handshake(options))
    network.connect("10.0.0.9", ADDRESS, factory).addCallback(found.append)
    network.clock.pump([0] * 10)
    return found[0]


def shown_by(network):
    """The serial number of the certificate that the server shows to a new connection."""
    done = shake_hands(network, CertificateOptions())
    return done.tls.get_peer_certificate().get_serial_number()


def test_a_new_certificate_is_shown_to_new_connections(files):
    config = TlsConfig(server_mode="enforcing", test_mode_enable=False, **files)
    network = network_with(config)
    first = shown_by(network)
    key, (certificate,) = self_signed()
    with capturedLogs() as logs:
        write_key(files["server_key_path"], key)
        assert shown_by(network) == first, "half of the change serves nobody"
        assert shown_by(network) == first
        write_certificate(files["server_cert_path"], certificate)
        assert shown_by(network) == certificate.get_serial_number() != first
        os.remove(files["server_cert_path"])
        assert shown_by(network) == certificate.get_serial_number()
    lines = [formatEvent(event) for event in logs]
    assert len([line for line in lines if "stay in use" in line]) == 2, lines
    assert len([line for line in lines if "read again" in line]) == 1, lines


def test_a_client_shows_its_new_certificate_and_trusts_new_authorities(files):
    config = TlsConfig(
        server_mode="enforcing",
        test_mode_enable=False,
        server_need_client_auth="require",
        server_auth_client=True,
        client_auth_server=True,
        **files,
    )
    network = network_with(config)
    client = RemotingClient(
        network.clock,
        NettyClientConfig(use_tls=True),
        tls=config,
        endpoint_for=network.endpoint,
    )

    # Twisted lets small writes wait for the reactor's own clock.
    body = b"x" * 100_000

    def answer():
        outcome = []
        client.request(ADDRESS, RemotingCommand.request(1, body=body), 3).addBoth(outcome.append)
        network.clock.pump([0] * 10 + [3])
        return outcome[0]

    assert answer().body == body
    key, (certificate,) = self_signed()
    with capturedLogs():
        write_key(files["server_key_path"], key)
        write_certificate(files["server_cert_path"], certificate)
        network.stop(ADDRESS)
        server = RemotingServer(network.clock, NettyServerConfig(), tls=ServerTls(config))
        listener = server.listener()
        listener.register(1, lambda request, peer: request.response(body=request.body))
        network.clock.pump([0] * 10)
        network.listen(ADDRESS, listener.factory)
        assert answer().body == body, "all four files of both ends have changed"


@pytest.mark.parametrize(
    ("mode", "warnings"), [(0o600, 0), (0o640, 0), (0o644, 1), (0o602, 1), (0o400, 0)]
)
def test_a_key_that_others_may_read_is_warned_of(files, mode, warnings):
    path = Path(files["server_key_path"])
    path.chmod(mode)
    with capturedLogs() as logs:
        ServerTls(TlsConfig(test_mode_enable=False, **files))
    lines = [line for event in logs if "chmod" in (line := formatEvent(event))]
    assert len(lines) == warnings, lines
    assert all(str(path) in line and "tls.server.keyPath" in line for line in lines)
    assert stat.S_IMODE(path.stat().st_mode) == mode, "it is the operator's"


#: Each alone, as a client that can do no better offers it.
@pytest.mark.parametrize(
    ("cipher", "works"),
    [
        ("ECDHE-ECDSA-AES128-GCM-SHA256", True),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", True),
        ("ECDHE-ECDSA-AES256-SHA384", False),
        ("ECDHE-ECDSA-AES128-SHA256", False),
        ("ECDHE-ECDSA-AES128-SHA", False),
    ],
)
def test_suites_with_cbc_are_off(cipher, works):
    options = CertificateOptions(
        acceptableCiphers=AcceptableCiphers.fromOpenSSLCipherString(cipher),
        lowerMaximumSecurityTo=TLSVersion.TLSv1_2,
    )
    with capturedLogs():
        done = shake_hands(network_with(TlsConfig(server_mode="enforcing")), options)
    assert done.is_done is works and (done.error is None) is works
    assert not works or done.tls.get_cipher_name() == cipher


def pem(kind, data):
    lines = base64.encodebytes(data).decode()
    return f"-----BEGIN {kind}-----\n{lines}-----END {kind}-----\n".encode()


#: PKCS8 of a key whose algorithm, 1.2.3.4, nobody knows.
UNKNOWN_KEY = bytes.fromhex("3010" + "020100" + "3005" + "06032a0304" + "0404" + "deadbeef")
GARBAGE = {
    "nothing": b"",
    "no PEM": bytes(range(256)) * 8,
    "text": "-----BEGIN CERTIFICATE-----\nÄ\n-----END CERTIFICATE-----".encode(),
    "half of it": None,
    "a certificate of nothing": pem("CERTIFICATE", os.urandom(500)),
    "a key of nothing": pem("PRIVATE KEY", os.urandom(500)),
    "a key of an unknown kind": pem("PRIVATE KEY", UNKNOWN_KEY),
}


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize(
    ("of", "named"),
    [
        ("server_cert_path", "tls.server.certPath"),
        ("server_key_path", "tls.server.keyPath"),
        ("server_trust_cert_path", "tls.server.trustCertPath"),
    ],
)
def test_garbage_serves_nobody_and_keeps_nobody_from_what_was_there(files, of, named, garbage):
    trusted = Path(files["server_cert_path"]).with_name("trusted.pem")
    trusted.write_bytes(Path(files["server_cert_path"]).read_bytes())
    files["server_trust_cert_path"] = str(trusted)
    config = TlsConfig(
        server_mode="enforcing",
        test_mode_enable=False,
        server_need_client_auth="optional",
        server_auth_client=True,
        **files,
    )
    network = network_with(config)
    first = shown_by(network)
    content = Path(files[of]).read_bytes()
    with capturedLogs() as logs:
        data = GARBAGE[garbage]
        replace(files[of], content[: len(content) // 2] if data is None else data)
        assert [shown_by(network) for _ in range(3)] == [first] * 3
    (line,) = [line for line in map(formatEvent, logs) if "former ones stay in use" in line]
    assert f"{named} {files[of]}: " in line
    assert not [event for event in logs if "log_failure" in event]
    key, (certificate,) = self_signed()
    with capturedLogs() as logs:
        replace(files[of], content)
        write_key(files["server_key_path"], key)
        write_certificate(files["server_cert_path"], certificate)
        assert shown_by(network) == certificate.get_serial_number()
    assert [line for line in map(formatEvent, logs) if "read again" in line]
