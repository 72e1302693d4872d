"""What a forward pass costs on a named GPU, from measured operator tables. Milliseconds, bytes, tokens."""
