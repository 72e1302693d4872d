"""Between measured points and beyond them: grids, sites with curves, single curves.

Every kind answers in the same order: the exact point; inside the data; beyond the data; else not at all. `Roofline` is
the time that the hardware's limits allow, in ms, as a function of coordinates (rows of a float64 array).
"""
