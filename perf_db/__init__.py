"""What the tables are, and where replays are kept: parquet behind commit records, one DuckDB file as the face."""
