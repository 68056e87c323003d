"""Ready jobs: `rmqspark ingest`, `replay`, `stats` and `lag`."""
