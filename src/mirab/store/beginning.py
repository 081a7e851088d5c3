"""What the ledger of a store began with, as `service.recover` puts it down before the first record."""

from __future__ import annotations

import json
from collections.abc import Callable

from mirab.model.codec import decode
from mirab.model.records import Beginning


def beginning(meta: Callable[[str], str | None]) -> Beginning | None:
    """None = not all of it is put down: no service has decided on the store yet.

    Args:
        meta: of the store.
    """
    texts = [meta(key) for key in ("cluster", "budgets", "policy", "began_at")]
    if None in texts:
        return None
    cluster, budgets, policy, at = (json.loads(text or "") for text in texts)
    return Beginning(decode(cluster), decode(budgets), decode(policy), at)
