"""One command per file. Anything heavier than click is imported inside the command, so that --help stays instant."""
