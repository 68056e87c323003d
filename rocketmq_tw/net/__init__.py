"""The remoting protocol on Twisted.

Public: `server.RemotingServer` and the `Listener`s that it makes, `client.RemotingClient`, and what
handlers, callers and checks of access see of them in `interfaces`; `tls.ServerTls`, `address`,
`descriptors`, `errors`, `growing_answers`, `live_config`; `reactor.install` for servers. The rest
is used inside this room alone.
"""
