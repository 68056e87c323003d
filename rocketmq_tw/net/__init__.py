"""The remoting protocol on Twisted.

Public: `server.RemotingServer` and the `listener.Listener`s that it makes, `client.RemotingClient`,
and what handlers and callers see of them in `interfaces`; `tls.ServerTls`, `address`, `errors`;
`reactor.install` for servers. The rest is theirs alone.
"""
