"""Speculative decoding: who accepts how many drafts. The scheduling rules are in the engine and in `sim.reference`."""
