"""The admin client: a method for each request that asks a server or changes it.

Public: `AdminClient`. Brokers are named by address (`host:port`); name servers are asked in turn,
but what changes them goes to all of them. Every method returns a Deferred, which fails with
`BrokerError` where a server refuses.
"""

from rocketmq_tw.client.admin.client import AdminClient

__all__ = ["AdminClient"]
