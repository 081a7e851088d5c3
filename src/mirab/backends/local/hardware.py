"""What this machine has: GPUs that NVML or the device files tell of, or that are only pretended; and its cores."""

from __future__ import annotations

import os
import re
import socket
from importlib import import_module
from typing import Any

from mirab.model.resources import Cluster, Pool
from mirab.model.units import NodeName

CORE_WEIGHT = 10
"""Charge of one core of the CPU pool, in milli-units: a hundred cores are worth a GPU."""
PRETENDED = "pretend"
DEVICE = re.compile(r"nvidia(\d+)")


class DetectionError(Exception):
    """Nothing to schedule on was found; says what to do."""


def detect(pretend_gpus: int | None = None, pretend_nodes: int = 1, nvml: Any = None, devices: str = "/dev") -> Cluster:
    """The cluster that is this machine: pool ``gpu`` where there are GPUs, and pool ``cpu`` of its cores.

    Args:
        pretend_gpus: GPUs to declare on each pretended node instead of looking for real ones; 0 = none.
        pretend_nodes: how many nodes to pretend, each with that many GPUs. All are this machine.
        nvml: NVIDIA's library, or one that pretends to be; None = `pynvml`, if it is there.
        devices: where device files are, if there is no NVML.

    Raises:
        DetectionError: a number makes no sense.
    """
    if pretend_nodes < 1 or (pretend_gpus or 0) < 0:
        raise DetectionError("pretend a number of GPUs from 0 up, on a number of nodes from 1 up")
    if pretend_gpus is None and pretend_nodes > 1:
        raise DetectionError("only pretended GPUs can be spread over pretended nodes: say how many each has")
    host = NodeName(socket.gethostname().split(".")[0] or "localhost")
    names = [host] if pretend_nodes == 1 else [NodeName(f"{host}-{n}") for n in range(1, pretend_nodes + 1)]
    count, kind = (pretend_gpus, PRETENDED) if pretend_gpus is not None else found_gpus(nvml, devices)
    cpu = Pool(
        "cpu",
        (NodeName(f"{host}-cpu"),),
        0,
        cpus_per_node=cores(),
        memory_mib_per_node=memory_mib(),
        weight=CORE_WEIGHT,
    )
    gpu = Pool("gpu", tuple(names), count, kind, cpus_per_node=cores(), memory_mib_per_node=memory_mib())
    return Cluster(host, (gpu, cpu) if count else (cpu,))


def found_gpus(nvml: Any, devices: str) -> tuple[int, str]:
    """How many, and of what type ("" = not known). By NVML, else by the device files."""
    library = nvml if nvml is not None else load_nvml()
    if library is not None:
        kinds = gpu_names(library)
        if kinds:
            return len(kinds), short_type(kinds[0])
    return len([name for name in os.listdir(devices) if DEVICE.fullmatch(name)]), ""


def load_nvml() -> Any:
    """The `pynvml` module, ready for use; None where there is no library, driver or GPU."""
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
    except Exception:
        return None
    return nvml


def gpu_names(nvml: Any) -> list[str]:
    """Names of the GPUs in NVML's order, which is that of the bus: ``NVIDIA H100 80GB HBM3``."""
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        names = [nvml.nvmlDeviceGetName(handle) for handle in handles]
    except Exception:
        return []
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]


def short_type(name: str) -> str:
    """``NVIDIA H100 80GB HBM3`` -> ``h100``, ``NVIDIA GeForce RTX 4090`` -> ``rtx4090``, ``Tesla V100`` -> ``v100``."""
    words = [word for word in re.split(r"[\s-]+", name.lower()) if word not in ("nvidia", "geforce", "tesla", "quadro")]
    if not words:
        return ""
    return "".join(words[:2]) if words[0] in ("rtx", "gtx", "titan") else words[0]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
