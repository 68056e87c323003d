"""Static topics: logic queues that keep their ids and offsets while they move between brokers.

Public: `StaticTopics` (`part.py`). Which queues there are stands in the table `Tables.mappings`.
"""
