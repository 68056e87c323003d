"""The requests that a name server answers: a module for each family.

Public, to `namesrv.NameServer`: the class of each family, whose `handlers()` has code → handler.
"""
