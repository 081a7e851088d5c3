"""Slow, obvious reference implementations. They import nothing of `mirab.core` and `mirab.study`."""
