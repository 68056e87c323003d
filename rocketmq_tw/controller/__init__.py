"""The controller: who is the master of each group of brokers, decided by a Raft group.

`core/` is pure: the state, the events that change it, the rules of elections, and the decision on
each request. Around it: the state machine on `raft/`, the liveness of brokers, the requests.
"""
