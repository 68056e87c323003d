"""How a client proves who it is: stock's ACL signature over a request."""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from rocketmq_tw.wire.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


@dataclass(frozen=True)
class Credentials:
    """An access key with its secret, as stock's ACL knows them; the secret stays out of `repr`."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, command: RemotingCommand) -> None:
        """Adds key and signature: HMAC-SHA1 of the field values in the order of their names,
        followed by the body."""
        fields = command.ext_fields
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        text = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE)
        digest = hmac.new(self.secret_key.encode(), text.encode() + command.body, hashlib.sha1)
        fields[SIGNATURE] = base64.b64encode(digest.digest()).decode()
