"""Brokers of stock that serve nobody without an account."""

import json
from pathlib import Path

from tests.support.cluster import Cluster

#: The account that may do everything.
KEYS = {"access_key": "RocketMQ", "secret_key": "12345678"}

_ACCOUNTS = """globalWhiteRemoteAddresses: []
accounts:
- accessKey: {access_key}
  secretKey: {secret_key}
  whiteRemoteAddress:
  admin: true
"""
_PROVIDER = "org.apache.rocketmq.auth.{0}.provider.{1}{2}Provider"


def guarded_cluster(home: Path, version: str = "4.9.7") -> Cluster:
    """A name server and a broker of one version that asks for accounts, not started."""
    settings = {"aclEnable": "true"} if version.startswith("4.") else _accounts_of_5x(home)
    cluster = Cluster.of(home, name_servers=[version], brokers=[version], settings=settings)
    conf = cluster.broker.home / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "plain_acl.yml").write_text(_ACCOUNTS.format(**KEYS))
    return cluster


def _accounts_of_5x(home: Path) -> dict[str, str]:
    user = {"username": KEYS["access_key"], "password": KEYS["secret_key"]}
    inner = {"accessKey": KEYS["access_key"], "secretKey": KEYS["secret_key"]}
    settings = {
        # Without it 5.3.3 cannot delete a topic.
        "timerWheelEnable": "true",
        "authConfigPath": str(home / "accounts"),
        "initAuthenticationUser": json.dumps(user),
        "innerClientAuthenticationCredentials": json.dumps(inner),
    }
    for of in ("authentication", "authorization"):
        title = of.capitalize()
        settings[f"{of}Enabled"] = "true"
        settings[f"{of}Provider"] = _PROVIDER.format(of, "Default", title)
        settings[f"{of}MetadataProvider"] = _PROVIDER.format(of, "Local", f"{title}Metadata")
    return settings
