"""What can go wrong inside a replay, phrased for the person who started it."""


class ReplayError(RuntimeError):
    """The replay cannot be completed; nothing has been written. The message names the request and the remedy."""


class Deadlock(ReplayError):
    """Work remains, but nothing can run and nothing is due to arrive."""


class Livelock(ReplayError):
    """Passes keep preempting without producing a token."""


class TimingError(ReplayError):
    """A timing model answered with a negative, infinite or undefined duration."""


class WorkloadError(ReplayError, ValueError):
    """The workload or the deployment is not one the engine can take: a column out of range, arrivals out of order."""
