"""The one strict loader of run configurations, and the classes it makes."""

from sim.config.base import ConfigError
from sim.config.loading import load_run_config
from sim.config.run import RunConfig, Sla

__all__ = ["ConfigError", "RunConfig", "Sla", "load_run_config"]
