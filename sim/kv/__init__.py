"""The paged KV pool of a rank: blocks in use, cached blocks, free blocks."""
