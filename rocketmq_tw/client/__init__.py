"""Producers and consumers with Deferreds, and a blocking client on the same codec.

Public: `producer.Producer`, `push.PushConsumer`, `pull.PullConsumer`, which may share a
`session.Session`; `admin.AdminClient`; `blocking.BlockingClient`, which needs no reactor and
imports no Twisted; messages and results in `message`, what producers and consumers may be told in
`settings`, errors in `errors` and `net.errors`, `Credentials` that sign requests in `commands`.
"""
