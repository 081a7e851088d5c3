"""mirab: who gets the GPUs next, why, and what a budget would have done to last month's jobs."""

__version__ = "0.1.0"
