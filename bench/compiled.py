"""Any bench with the compiled core and measures instead of the plain files.

    python -m bench.compiled BENCH [ARGUMENTS OF IT]        e.g. python -m bench.compiled speed --only load

The wheel is built from this checkout (a minute, and a C compiler), unless it was built from the same files before,
and the bench is run with it in front of the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "bench"


def package() -> Path:
    """The folder to import the compiled mirab from.

    Raises:
        RuntimeError: it could not be built; the message has the end of what pip said.
    """
    folder = OUT / f"compiled-{_source_hash()}"
    if not folder.exists():
        for old in OUT.glob("compiled-*"):
            shutil.rmtree(old)
        making = folder.with_name("making")
        shutil.rmtree(making, ignore_errors=True)
        _pip("install", "--no-deps", "--target", str(making), str(ROOT))
        making.rename(folder)
    return folder


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        env=os.environ | {"MIRAB_COMPILED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the compiled wheel could not be built:\n{done.stderr[-3000:]}")


def _source_hash() -> str:
    digest = sha256(sys.version.encode())
    for path in [ROOT / "hatch_build.py", ROOT / "pyproject.toml", *sorted((ROOT / "src" / "mirab").rglob("*.py"))]:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def main(arguments: list[str] | None = None) -> int:
    bench, *rest = sys.argv[1:] if arguments is None else arguments
    environment = os.environ | {"PYTHONPATH": str(package())}
    return subprocess.run(
        [sys.executable, "-m", f"bench.{bench}", *rest], cwd=ROOT, env=environment, check=False
    ).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main())
