"""Frames, commands, codes, headers and bodies of the remoting protocol; pure.

Public: `frame` and `command`, from bytes to a `RemotingCommand` and back; `codes`; the typed
`headers` and `bodies`; `errors`, with `RequestError` for refusals; `fastjson`, the JSON
of stock's bodies.
"""
