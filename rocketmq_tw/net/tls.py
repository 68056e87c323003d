"""TLS as stock has it: three server modes, PEM files, and a certificate made for tests.

In mode permissive plaintext and TLS share a port: the first byte of a TLS handshake is 0x16,
which no remoting frame within the limit starts with.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import CertificateOptions
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.net.address import format_address

HANDSHAKE_BYTE = 0x16


class TlsConfigError(ValueError):
    """TLS keys that contradict each other or name files that cannot be used."""


class ServerTls:
    """Wraps the protocols of a server as `tls.server.mode` says."""

    def __init__(self, config: TlsConfig) -> None:
        if config.server_mode not in ("disabled", "permissive", "enforcing"):
            raise TlsConfigError(
                f"tls.server.mode is {config.server_mode!r}; give disabled, permissive or enforcing"
            )
        self._mode = config.server_mode
        self._context: Any = None
        if self._mode != "disabled":
            self._context = server_context(config)

    def wrap(self, protocol: Protocol, undecided: Any, deadline: float) -> Protocol:
        """What to give to the transport in place of `protocol`; it stands in `undecided` (`add`,
        `discard`) until its first byte came, and is cut where that takes until `deadline`."""
        if self._mode == "disabled":
            return protocol
        factory = TLSMemoryBIOFactory(self._context, False, Factory.forProtocol(lambda: protocol))
        factory.noisy = False
        plain = protocol if self._mode == "permissive" else None
        return FirstByte(plain, factory.buildProtocol(None), undecided, deadline)


class FirstByte(Protocol):
    """Waits for the first byte and then puts the protocol that it asks for in its place."""

    log = Logger()
    #: No request came yet.
    unanswered = 0

    def __init__(
        self, plain: Protocol | None, secured: Any, undecided: Any, deadline: float
    ) -> None:
        self._plain, self._secured, self._undecided = plain, secured, undecided
        self._chosen: Any = None
        self._deadline = deadline

    def connectionMade(self) -> None:
        self._undecided.add(self)

    def dataReceived(self, data: bytes) -> None:
        self._choose(data[0])
        if self._chosen is not None:
            self._chosen.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._undecided.discard(self)
        if self._chosen is not None:
            self._chosen.connectionLost(reason)

    def check(self, now: float) -> None:
        """Cuts a connection on which nothing came for too long."""
        if now >= self._deadline:
            self.abort()

    def abort(self) -> None:
        """Cuts the connection."""
        self.transport.abortConnection()  # type: ignore[union-attr]

    drain = lose_connection = abort

    def _choose(self, first: int) -> None:
        self._undecided.discard(self)
        self._chosen = self._secured if first == HANDSHAKE_BYTE else self._plain
        if self._chosen is None:
            self.log.warn(
                "refusing plaintext of {peer}: tls.server.mode is enforcing",
                peer=format_address(self.transport.getPeer()),  # type: ignore[union-attr]
            )
            self.abort()
            return
        self._chosen.makeConnection(self.transport)
        # From here on this layer costs nothing more than the attribute.
        self.dataReceived = self._chosen.dataReceived  # type: ignore[method-assign]


def server_context(config: TlsConfig) -> CertificateOptions:
    """What a server shows and asks for. Raises `TlsConfigError` that names the key."""
    if config.test_mode_enable:
        _refuse_unkept("tls.server.authClient", config.server_auth_client)
        key, certificates = self_signed()
        return CertificateOptions(privateKey=key, certificate=certificates[0])
    key, certificates = _own_certificate(
        "tls.server", config.server_key_path, config.server_cert_path, config.server_key_password
    )
    wanted = config.server_need_client_auth.strip().lower() or "none"
    if wanted not in ("none", "optional", "require"):
        raise TlsConfigError(
            f"tls.server.need.client.auth is {wanted!r}; give none, optional or require"
        )
    options = CertificateOptions(
        privateKey=key, certificate=certificates[0], extraCertChain=certificates[1:]
    )
    if wanted != "none":
        context = options.getContext()
        flags = SSL.VERIFY_PEER
        if wanted == "require":
            flags |= SSL.VERIFY_FAIL_IF_NO_PEER_CERT
        if config.server_auth_client:
            _trust(context, "tls.server.trustCertPath", config.server_trust_cert_path)
            context.set_verify(flags)
        else:
            # A certificate is wanted and not checked: need.client.auth without authClient.
            context.set_verify(flags, lambda *_: True)
    return options


def client_context(config: TlsConfig) -> CertificateOptions:
    """What a client shows and asks for. As in stock the chain is checked where
    `tls.client.authServer` is set, and host names are not: brokers announce plain addresses."""
    if config.test_mode_enable:
        _refuse_unkept("tls.client.authServer", config.client_auth_server)
        return CertificateOptions()
    key: crypto.PKey | None = None
    certificates: list[crypto.X509] = []
    if config.client_cert_path:
        key, certificates = _own_certificate(
            "tls.client",
            config.client_key_path,
            config.client_cert_path,
            config.client_key_password,
        )
    options = CertificateOptions(
        privateKey=key,
        certificate=certificates[0] if certificates else None,
        extraCertChain=certificates[1:] or None,
    )
    if config.client_auth_server:
        context = options.getContext()
        _trust(context, "tls.client.trustCertPath", config.client_trust_cert_path)
        context.set_verify(SSL.VERIFY_PEER)
    return options


def self_signed() -> tuple[crypto.PKey, list[crypto.X509]]:
    """A key and a certificate for itself, as stock's test mode makes them at each start."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return crypto.PKey.from_cryptography_key(key), [crypto.X509.from_cryptography(certificate)]


def _refuse_unkept(key: str, wanted: bool) -> None:
    if wanted:
        raise TlsConfigError(
            f"{key} is true, but tls.test.mode.enable checks nobody: set that to false"
        )


def _trust(context: SSL.Context, key: str, path: str) -> None:
    """Trusts the certificates in the file at `path`, or without one the system's, as a JVM does."""
    if not path:
        context.set_default_verify_paths()
        return
    store = context.get_cert_store()
    assert store is not None
    for certificate in _certificates(key, path):
        store.add_cert(certificate)


def _own_certificate(
    prefix: str, key_path: str, cert_path: str, password: str
) -> tuple[crypto.PKey, list[crypto.X509]]:
    certificates = _certificates(f"{prefix}.certPath", cert_path)
    data = _read(f"{prefix}.keyPath", key_path)
    try:
        key = serialization.load_pem_private_key(data, password.encode() if password else None)
        return crypto.PKey.from_cryptography_key(key), certificates  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise TlsConfigError(f"{prefix}.keyPath {key_path}: {error}") from error


def _certificates(key: str, path: str) -> list[crypto.X509]:
    data = _read(key, path)
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise TlsConfigError(f"{key} {path}: {error}") from error
    return [crypto.X509.from_cryptography(certificate) for certificate in found]


def _read(key: str, path: str) -> bytes:
    if not path:
        raise TlsConfigError(f"{key} is not set: name a PEM file, or set tls.test.mode.enable")
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise TlsConfigError(f"{key} {path}: {error.strerror}") from error
