"""The broker: topics, groups, offsets, clients and the requests they send."""
