"""What exists: traces, performance data, replays, their tables and checks."""
