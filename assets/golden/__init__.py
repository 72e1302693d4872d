"""Recorded answers of other engines: load a case, replay it, compare. `check.check_dir` is the way in."""
