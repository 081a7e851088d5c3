"""Where a SQLite file may lie: its locks and its shared memory do not work across a network."""

from __future__ import annotations

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

UNSAFE = frozenset((
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
    "nfs4", "ocfs2", "orangefs", "osxfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs",
))  # fmt: skip
UNSAFE_FUSE = frozenset((
    "ceph", "gcsfuse", "glusterfs", "grpcfuse", "juicefs", "mfs", "osxfs", "rclone", "s3fs", "seaweedfs", "sshfs",
    "vmhgfs-fuse",
))  # fmt: skip
"""Kinds of ``fuse.KIND`` that reach over a network or to the host of a virtual machine."""


def unsafe_kind(folder: Path, mounts: str | None = None) -> str | None:
    """The kind of a file system on which SQLite would lose data; None = it is safe, or nobody can say.

    `mounts`: the text of ``/proc/self/mountinfo``; None = of this machine.
    """
    kind = filesystem_kind(folder, _mounts() if mounts is None else mounts)
    family, _, member = kind.partition(".")
    return kind if kind in UNSAFE or (family == "fuse" and member in UNSAFE_FUSE) else None


def filesystem_kind(folder: Path, mounts: str) -> str:
    """The kind of the innermost mount that holds a folder; "" = not known."""
    real = os.path.realpath(folder)
    best, found = -1, ""
    for line in mounts.splitlines():
        fields, _, tail = line.partition(" - ")
        parts, kinds = fields.split(" "), tail.split(" ")
        if len(parts) < 5 or not kinds[0]:
            continue
        point = _unescaped(parts[4])
        if _holds(point, real) and len(point) >= best:
            best, found = len(point), kinds[0]
    return found


def _mounts() -> str:
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescaped(field: str) -> str:
    """The kernel writes blanks, tabs, newlines and backslashes in octal."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
