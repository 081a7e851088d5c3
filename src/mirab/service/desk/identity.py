"""As which Unix user a job runs. A service of root never runs a job as root because nobody said otherwise."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from typing import TypeAlias

from mirab.service.auth.principal import Principal
from mirab.service.desk.errors import denied

RunAs: TypeAlias = Callable[[Principal], tuple[int | None, int | None]]


def run_as(who: Principal, stand_in: pwd.struct_passwd | None = None) -> tuple[int | None, int | None]:
    """User and group of a principal's jobs; None = the service's own user, where it may not choose.

    `stand_in`: as whom the jobs of those run who are no users of this machine; None = they are refused.

    Raises:
        DeskError: the service runs as root, and there is no Unix user of that name, or it is root by a mere token.
    """
    if os.geteuid() != 0:
        return None, None
    if who.uid is not None:
        return who.uid, who.gid
    try:
        known = pwd.getpwnam(who.user)
    except (KeyError, ValueError):
        if stand_in is not None:
            return stand_in.pw_uid, stand_in.pw_gid
        raise denied(
            f"{who.user} is no user of this machine, and the service does not run other people's jobs as root: "
            "ask for a user account, or submit over the Unix socket; an operator may name one user for all who have "
            "none here (--run-as)"
        ) from None
    if known.pw_uid == 0:
        raise denied("a token runs nothing as root: use one of another user, or submit as root over the Unix socket")
    return known.pw_uid, known.pw_gid


def unix_user(name: str) -> pwd.struct_passwd:
    """Who stands in for those who have no account here.

    Raises:
        ValueError: there is no such user, it is root, or this process may run nothing as them.
    """
    try:
        known = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise ValueError(f"{name!r} is no user of this machine: name one that is in its /etc/passwd") from None
    if known.pw_uid == 0:
        raise ValueError(f"whoever may submit would do so as {name}: name a user without the rights of root")
    if os.geteuid() not in (0, known.pw_uid):
        raise ValueError(f"only a service of root runs jobs as {name}: start it as root, or leave this out")
    return known
