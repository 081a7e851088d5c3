"""Slurm executes, mirab decides: pure translators of its listings and commands, and one small runner."""
