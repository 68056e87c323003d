"""Typed configuration from stock's .properties keys.

Public: the classes in `broker`, `store`, `net`, `namesrv` and `controller`, which derive from
`base.Config`; `load.load`, which makes them from settings; `change.change` and `change.on_change`,
for keys that change while a server runs; `properties`, which reads and writes files; `schema`,
which lists keys.
"""
