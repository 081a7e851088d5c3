"""Durability: what was decided, and what people read of it, in SQLite or PostgreSQL."""

from mirab.store.errors import (
    CorruptStoreError,
    LostLeadError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    UnreachableStoreError,
)
from mirab.store.store import Store, open_store

__all__ = [
    "CorruptStoreError",
    "LostLeadError",
    "Store",
    "StoreBusyError",
    "StoreClosedError",
    "StoreError",
    "UnreachableStoreError",
    "open_store",
]
