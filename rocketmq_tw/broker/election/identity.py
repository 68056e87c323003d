"""Reads and writes the identity file, which says for ever which broker of its group this is.

`storePathBrokerIdentity` has `cluster#name#id`. While a controller is asked for the id, a second
file, with `-temp` behind its name, has `cluster#name#id#code`; the code proves to the controller
later that it was this broker that asked. See docs/formats/broker-identity.md and the specification
"persistent broker id".
"""

from __future__ import annotations

import contextlib

import attrs

from rocketmq_tw.config.properties import ConfigError
from rocketmq_tw.files.atomic import settle, write_atomic
from rocketmq_tw.files.interface import IFiles

_SEPARATOR = "#"
_CLAIM_SUFFIX = "-temp"


class IdentityError(ConfigError):
    """An identity file that cannot be read, or that is another broker's; the text says what to
    do."""


@attrs.frozen
class Identity:
    """A broker by what never changes; `broker_id` counts from 1 in each group."""

    cluster: str
    broker_name: str
    broker_id: int


@attrs.frozen
class IdClaim:
    """An id that the broker asks for, and the code that it gives with it."""

    identity: Identity
    check_code: str


class IdentityFiles:
    """The identity and the claim on disk (docs/formats/broker-identity.md). All calls block; each
    write is durable when it returns. What is read must have the configuration's `cluster` and
    `broker_name`."""

    def __init__(self, files: IFiles, path: str, cluster: str, broker_name: str) -> None:
        """Raises `IdentityError` for a name that the files cannot hold."""
        for key, name in (("brokerClusterName", cluster), ("brokerName", broker_name)):
            if _SEPARATOR in name:
                raise IdentityError(
                    f"{key}={name}: controller mode allows no {_SEPARATOR} in it, since that"
                    " separates the parts of the identity file"
                )
        self._files = files
        #: Where the identity is.
        self.path = path
        self._claim_path = path + _CLAIM_SUFFIX
        self.cluster = cluster
        self.broker_name = broker_name

    def settle(self) -> None:
        """Makes certain that no power loss takes what is there: to be called before it is used."""
        settle(self._files, self.path)

    def identity(self) -> Identity | None:
        """Returns what is kept; None where no id was given yet. Raises `IdentityError`."""
        fields = self._read(self.path, 3)
        return None if fields is None else self._identity(self.path, fields)

    def claim(self) -> IdClaim | None:
        """Returns the claim that was not decided when the broker ended; None where there is
        none."""
        fields = self._read(self._claim_path, 4)
        if fields is None:
            return None
        return IdClaim(self._identity(self._claim_path, fields), fields[3])

    def write_claim(self, broker_id: int, check_code: str) -> IdClaim:
        """Keeps the wish for `broker_id`, before the controller hears of it."""
        claim = IdClaim(Identity(self.cluster, self.broker_name, broker_id), check_code)
        self._write(self._claim_path, *self._fields(claim.identity), check_code)
        return claim

    def drop_claim(self) -> None:
        """Forgets the claim; nothing where there is none."""
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(self._claim_path)

    def keep(self, claim: IdClaim) -> Identity:
        """Makes what was claimed the identity. A crash leaves the claim, the identity, or both;
        the identity is what counts then."""
        self._write(self.path, *self._fields(claim.identity))
        self.drop_claim()
        return claim.identity

    def _write(self, path: str, *fields: str) -> None:
        write_atomic(self._files, path, _SEPARATOR.join(fields).encode())

    def _fields(self, identity: Identity) -> tuple[str, str, str]:
        return identity.cluster, identity.broker_name, str(identity.broker_id)

    def _read(self, path: str, count: int) -> list[str] | None:
        try:
            fields = self._files.read(path).decode().strip().split(_SEPARATOR)
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            fields = []
        if fields == [""]:
            # Stock removes its file and writes it anew: a crash in between leaves it empty.
            return None
        if len(fields) != count or not all(fields) or not fields[2].isdecimal():
            raise IdentityError(
                f"{path} is damaged: bring back a copy of it; or remove it, then this broker joins"
                " its group as a new one"
            )
        return fields

    def _identity(self, path: str, fields: list[str]) -> Identity:
        found = Identity(fields[0], fields[1], int(fields[2]))
        if (found.cluster, found.broker_name) != (self.cluster, self.broker_name):
            raise IdentityError(
                f"{path} is that of broker {found.broker_name} in cluster {found.cluster}, but the"
                f" configuration says {self.broker_name} in {self.cluster}: set brokerName and"
                " brokerClusterName back, or give this broker another store"
            )
        return found
