"""A folder of mirab's own form: a log with its cluster and its node events beside it, as `mirab synth` writes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mirab.logs.errors import LogError
from mirab.logs.options import LoadOptions

LOGS = ("workloads.csv", "workloads.csv.gz")
CLUSTER = "cluster.yaml"
NODE_EVENTS = ("node_events.csv", "node_events.csv.gz")


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """The files of such a folder.

    Attributes:
        cluster, node_events: None = there is none.
    """

    path: Path
    log: Path
    cluster: Path | None
    node_events: Path | None

    @property
    def name(self) -> str:
        return self.path.resolve().name or "log"

    def beside(self, cluster: Path | None, node_events: Path | None) -> tuple[Path | None, Path | None]:
        """Cluster and node events: what was chosen, else its own."""
        return cluster or self.cluster, node_events or self.node_events

    def completed(self, options: LoadOptions) -> LoadOptions:
        """The options with the folder's own files wherever none was chosen."""
        cluster, node_events = self.beside(options.cluster, options.node_events)
        return replace(options, cluster=cluster, node_events=node_events)

    def note(self, options: LoadOptions) -> str:
        """What was taken from it, for options that are complete."""
        beside = [each.name for each in (options.cluster, options.node_events) if each and each.parent == self.path]
        taken = f"the log is {self.log.name} of the folder {self.name}"
        return f"{taken}, with {' and '.join(beside)} beside it" if beside else taken


def own_folder(path: Path, form: str | None = None) -> OwnFolder | None:
    """The folder's files; None where it is a file, or holds no log of that name.

    Args:
        form: the form that a person chose; HTCondor's history is a folder of another kind, whatever lies in it.

    Raises:
        LogError: it holds the same thing twice, packed and not.
    """
    if form == "htcondor" or not path.is_dir():
        return None
    log = _one_of(path, LOGS)
    if log is None:
        return None
    cluster = path / CLUSTER
    return OwnFolder(path, log, cluster if cluster.is_file() else None, _one_of(path, NODE_EVENTS))


def _one_of(folder: Path, names: tuple[str, ...]) -> Path | None:
    found = [folder / name for name in names if (folder / name).is_file()]
    if len(found) > 1:
        both = " and ".join(each.name for each in found)
        raise LogError(f"holds both {both}", folder, remedy="name the one that is meant, or remove the other")
    return found[0] if found else None
