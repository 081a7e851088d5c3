"""How busy the GPUs of each run are, from a source that tells; never a guess where none does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from mirab.backends.local import rundir
from mirab.backends.local.hardware import PRETENDED, load_nvml
from mirab.model.resources import Cluster
from mirab.model.units import RunId

Source: TypeAlias = Callable[[], Sequence[int | None]]
"""Activity of each GPU of this machine in per cent, by index; None = this one does not tell."""
SAMPLE_S = 10.0


def nvml_source(cluster: Cluster, nvml: Any = None) -> Source | None:
    """NVML's utilization of this machine's GPUs; None where they are pretended, or there is no NVML."""
    pools = [pool for pool in cluster.pools if pool.gpus_per_node]
    if len(pools) != 1 or len(pools[0].nodes) != 1 or pools[0].gpu_type == PRETENDED:
        return None
    library = nvml if nvml is not None else load_nvml()
    return None if library is None else lambda: utilization(library)


def utilization(nvml: Any) -> list[int | None]:
    return [utilization_of(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def utilization_of(nvml: Any, index: int) -> int | None:
    """Per cent of the last moments in which the GPU was at work; None if it does not tell (a MIG slice, a fault)."""
    try:
        return int(nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(index)).gpu)
    except Exception:
        return None


class Sampler:
    """Asks the source every few seconds in a thread of its own: a driver that hangs stops nothing else."""

    def __init__(self, source: Source, hand_over: Callable[[Sequence[int | None]], None], every_s: float) -> None:
        self.source, self.hand_over, self.every_s = source, hand_over, every_s
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._work, name="mirab-activity", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while not self.closing.wait(self.every_s):
            try:
                sample = self.source()
            except Exception:
                continue
            self.hand_over(sample)

    def close(self) -> None:
        self.closing.set()
        self.thread.join(timeout=1)


class Activity:
    """Sums of the samples of each run, kept in its folder so that they outlive the service."""

    def __init__(self) -> None:
        self.means: dict[RunId, float] = {}

    def take_in(self, sample: Sequence[int | None], held: Mapping[RunId, tuple[str, Sequence[int]]]) -> None:
        """`held`: each run's folder and GPUs. A run whose GPUs do not tell gets no sample."""
        means: dict[RunId, float] = {}
        for run_id, (directory, gpus) in held.items():
            told = [value for gpu in gpus if gpu < len(sample) and (value := sample[gpu]) is not None]
            seen = rundir.read_json(os.path.join(directory, rundir.ACTIVITY)) or {"samples": 0, "sum": 0.0}
            if told:
                seen = {"samples": seen["samples"] + 1, "sum": seen["sum"] + sum(told) / len(told)}
                rundir.write_json(os.path.join(directory, rundir.ACTIVITY), seen)
            if seen["samples"]:
                means[run_id] = seen["sum"] / seen["samples"] / 100
        self.means = means
