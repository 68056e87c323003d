"""Ready jobs: `rmqspark ingest`, `replay`, `stats` and `lag`.

Public: `main.main`, the console script. A module for each job stands beside it.
"""
