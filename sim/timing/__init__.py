"""What a pass costs. `plain` says it in ordinary Python, `compiled` in arrays and kernels; tests hold the two
together."""
