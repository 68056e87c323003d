"""Makes the contexts of OpenSSL for both ends of TLS, from PEM files, anew when one of the files
changes; and a certificate for tests."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto
from twisted.internet.ssl import AcceptableCiphers, CertificateOptions
from twisted.logger import Logger

from rocketmq_tw.config.net import CIPHERS, TlsConfig
from rocketmq_tw.net.errors import TlsConfigError

_SUITES = AcceptableCiphers.fromOpenSSLCipherString(CIPHERS)

log = Logger()


class TlsContext:
    """The context of one end, which follows its files. Where they cannot be used, such as a new key
    whose certificate is not there yet, the former context stays."""

    def __init__(self, make: Callable[[], CertificateOptions], paths: Sequence[str]) -> None:
        """`make` reads the files at `paths`; it raises `TlsConfigError`, here too."""
        self._make = make
        self._paths = [path for path in paths if path]
        # Looked at before they are read, so that a change meanwhile is seen next time.
        self._seen = self._file_states()
        self._options = make()

    def options(self) -> CertificateOptions:
        """Returns what a connection that is made now is to use. Looks at the files each time, which
        costs little beside a handshake, and reads them where they are others."""
        seen = self._file_states()
        if seen != self._seen:
            self._seen = seen
            try:
                self._options = self._make()
            except TlsConfigError as error:
                log.error(
                    "changed files of TLS cannot be used, the former ones stay in use: {error}",
                    error=error,
                )
            else:
                log.info("files of TLS have changed and were read again: {p}", p=self._paths)
        return self._options

    def _file_states(self) -> list[tuple[int, int, int] | None]:
        return [_version(path) for path in self._paths]


def _version(path: str) -> tuple[int, int, int] | None:
    """Tells one content of a file from another; None where there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


#: What may be wrong with a certificate beside who signed it, by OpenSSL's numbers of X509_V_ERR:
#: its errors call all of that "certificate verify failed".
_EXPIRED, _NOT_YET, _WEAK = "certificate has expired", "not yet valid", "certificate is too weak"
_FAULTS = {9: _NOT_YET, 10: _EXPIRED, 66: _WEAK, 67: _WEAK, 68: _WEAK}

#: What a client hears from OpenSSL, and what it means for its user.
_WORDS = {
    _EXPIRED: "the server's certificate, or that of who signed it, has expired: the server needs a"
    " new one in tls.server.certPath, or this machine's clock is wrong",
    _NOT_YET: "the server's certificate, or that of who signed it, is not valid yet: look at the"
    " clocks of both machines",
    _WEAK: "the server's certificate, or that of who signed it, is too weak: make one with an"
    " elliptic curve, or RSA of 2048 bits or more, and SHA-256",
    "alert certificate expired": "the server says that our certificate has expired: name a new one"
    " in tls.client.certPath",
    "certificate verify failed": "the server's certificate is signed by nobody that is trusted:"
    " name the authority in tls.client.trustCertPath (of rmqadmin: in the file of --tls-config),"
    " or set tls.client.authServer=false",
    "certificate required": "the server wants a certificate: name one in tls.client.certPath and"
    " its key in tls.client.keyPath (of rmqadmin: in the file of --tls-config)",
    "unknown ca": "the server does not trust who signed our certificate: see tls.client.certPath,"
    " and tls.server.trustCertPath there",
    "wrong version number": "the server speaks no TLS there",
}


def in_words(error: BaseException | None) -> str | None:
    """Returns what an error of OpenSSL means for a client and which key to change; None for any
    other error."""
    if not isinstance(error, SSL.Error) or not error.args or not isinstance(error.args[0], list):
        return None
    reasons = _reasons(error)
    for known, words in _WORDS.items():
        if any(known in reason for reason in reasons):
            return f"TLS: {words}"
    return f"TLS: {', '.join(reasons) or 'the handshake failed'}"


def _reasons(error: SSL.Error) -> list[str]:
    return [str(reason[-1]) for reason in error.args[0] if reason]


def server_context(config: TlsConfig, protocols: Sequence[bytes] = ()) -> TlsContext:
    """Returns what a server shows and asks for, and the `protocols` within TLS that it names to
    clients that ask; more may be added to them later. Raises `TlsConfigError` that names the
    key."""
    wanted = config.server_need_client_auth.strip().lower() or "none"
    if wanted not in ("none", "optional", "require"):
        raise TlsConfigError(
            f"tls.server.need.client.auth is {wanted!r}; give none, optional or require"
        )
    if config.test_mode_enable:
        _refuse_unkept("tls.server.authClient", config.server_auth_client)
    if config.server_auth_client and wanted == "none":
        raise TlsConfigError(
            "tls.server.authClient is true and tls.server.need.client.auth is none, so no client"
            " is asked for a certificate: set that to require, or to optional"
        )
    if wanted == "require" and not config.server_auth_client:
        raise TlsConfigError(
            "tls.server.need.client.auth is require and tls.server.authClient is false, so any"
            " certificate is good enough: set that to true"
        )
    if config.test_mode_enable:
        return TlsContext(lambda: _offering(_self_signed_options(), protocols), ())
    return TlsContext(
        lambda: _offering(_server_options(config, wanted), protocols),
        (config.server_key_path, config.server_cert_path, config.server_trust_cert_path),
    )


def client_context(config: TlsConfig) -> TlsContext:
    """Returns what a client shows and asks for. As in stock the chain is checked where
    `tls.client.authServer` is set, and host names are not: brokers announce plain addresses. Files
    that are named are read in any case, since nobody names a wrong one on purpose; what is not used
    then is warned of."""
    if config.test_mode_enable:
        _refuse_unkept("tls.client.authServer", config.client_auth_server)
    if config.unused_by_client is not None:
        log.warn("{unused}", unused=config.unused_by_client)
    return TlsContext(
        lambda: _client_options(config),
        (config.client_key_path, config.client_cert_path, config.client_trust_cert_path),
    )


def _self_signed_options() -> CertificateOptions:
    return _options(*self_signed())


def _server_options(config: TlsConfig, wanted: str) -> CertificateOptions:
    options = _own_options(
        "tls.server", config.server_key_path, config.server_cert_path, config.server_key_password
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
            # A certificate is wanted and not checked: optional without authClient.
            context.set_verify(flags, lambda *_: True)
    return options


def _offering(options: CertificateOptions, protocols: Sequence[bytes]) -> CertificateOptions:
    """Has a server choose the first of `protocols` that a client offers (ALPN)."""

    def choose(_: SSL.Connection, offered: list[bytes]) -> Any:
        return next((each for each in protocols if each in offered), SSL.NO_OVERLAPPING_PROTOCOLS)

    options.getContext().set_alpn_select_callback(choose)
    return options


def _client_options(config: TlsConfig) -> CertificateOptions:
    is_test = config.test_mode_enable
    if config.client_cert_path and (config.client_key_path or not is_test):
        options = _own_options(
            "tls.client",
            config.client_key_path,
            config.client_cert_path,
            config.client_key_password,
        )
    else:
        options = _options(None, [])
    trust_key, trust_path = "tls.client.trustCertPath", config.client_trust_cert_path
    if config.client_auth_server:
        context = options.getContext()
        _trust(context, trust_key, trust_path)
        context.set_verify(SSL.VERIFY_PEER, _verify)
    elif trust_path:
        _certificates(trust_key, trust_path)
    return _options(None, []) if is_test else options


def _verify(_: SSL.Connection, certificate: crypto.X509, number: int, depth: int, ok: int) -> bool:
    """Takes a certificate that is `ok`. What is wrong with another one is the handshake's error,
    where it is not who signed it."""
    if not ok and number in _FAULTS:
        raise SSL.Error([("", "", _FAULTS[number])])
    return bool(ok)


def _own_options(prefix: str, key_path: str, cert_path: str, password: str) -> CertificateOptions:
    key, certificates = _own_certificate(prefix, key_path, cert_path, password)
    options = _options(key, certificates)
    try:
        options.getContext()
    except SSL.Error as error:
        raise TlsConfigError(_why_unfit(error, prefix, key_path, cert_path)) from error
    _warn_of_age(f"{prefix}.certPath", cert_path, certificates)
    return options


def _why_unfit(error: SSL.Error, prefix: str, key_path: str, cert_path: str) -> str:
    """Says why OpenSSL does not take a key with its certificate."""
    reasons = _reasons(error)
    if any("mismatch" in reason for reason in reasons):
        return f"{prefix}.keyPath {key_path} is not the key of {prefix}.certPath {cert_path}"
    advice = ""
    if any("too small" in reason or "too weak" in reason for reason in reasons):
        advice = ": make one with an elliptic curve, or RSA of 2048 bits or more, and SHA-256"
    return f"{prefix}.certPath {cert_path} cannot be used ({', '.join(reasons)}){advice}"


def _warn_of_age(key: str, path: str, certificates: Sequence[crypto.X509]) -> None:
    """Warns of certificates that are not valid now: who checks them refuses this end."""
    now = datetime.now(UTC)
    for each in (certificate.to_cryptography() for certificate in certificates):
        expired = each.not_valid_after_utc < now
        if expired or now < each.not_valid_before_utc:
            log.warn(
                "{key} {path}: the certificate of {name} {fault} {time}: who checks it refuses this"
                " end of TLS",
                key=key,
                path=path,
                name=each.subject.rfc4514_string(),
                fault="has expired on" if expired else "is not valid before",
                time=each.not_valid_after_utc if expired else each.not_valid_before_utc,
            )


def _options(key: crypto.PKey | None, certificates: list[crypto.X509]) -> CertificateOptions:
    return CertificateOptions(
        privateKey=key,
        certificate=certificates[0] if certificates else None,
        extraCertChain=certificates[1:] or None,
        acceptableCiphers=_SUITES,
    )


def self_signed() -> tuple[crypto.PKey, list[crypto.X509]]:
    """Returns a key and a certificate for itself, as stock's test mode makes them at each start."""
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
    _warn_of_open_key(f"{prefix}.keyPath", key_path)
    try:
        key = serialization.load_pem_private_key(data, password.encode() if password else None)
        return crypto.PKey.from_cryptography_key(key), certificates  # type: ignore[arg-type]
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TlsConfigError(f"{prefix}.keyPath {key_path}: {error}") from error


def _warn_of_open_key(key: str, path: str) -> None:
    """Warns of a key that others than the server's user may read: they can pretend to be this
    server."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        # It was replaced since it was read, and is looked at again.
        return
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        log.warn(
            "{key} {path} may be read or written by every user of this machine: chmod o-rw {path}",
            key=key,
            path=path,
        )


def _certificates(key: str, path: str) -> list[crypto.X509]:
    data = _read(key, path)
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise TlsConfigError(
            f"{key} {path}: no certificate can be read there: name a PEM file that holds one"
        ) from error
    return [crypto.X509.from_cryptography(certificate) for certificate in found]


def _read(key: str, path: str) -> bytes:
    if not path:
        raise TlsConfigError(f"{key} is not set: name a PEM file, or set tls.test.mode.enable")
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise TlsConfigError(f"{key} {path}: {error.strerror}") from error
