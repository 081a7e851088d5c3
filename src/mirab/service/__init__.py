"""The live service: one process that decides, records, answers, and survives anything."""
