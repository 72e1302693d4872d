"""Fresh random cases answered by the two other engines. Not collected by pytest; see docs/correctness.md."""
