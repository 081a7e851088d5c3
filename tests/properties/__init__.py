"""Part of the proof that the scheduler keeps its rules."""
