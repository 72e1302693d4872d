"""Prefill and decode in pools of their own: the same kernels with two roles, and what happens between them.

`sim.reference_pools` is the specification.
"""
