"""Durability: an append-only journal of facts and plans, and what people read, folded from it."""
