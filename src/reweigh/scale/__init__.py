"""Past one machine: work in shards that are claimed, retried and counted once, on Ray."""
