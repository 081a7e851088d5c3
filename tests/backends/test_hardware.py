"""What the machine has and how busy it is, told by a library that pretends to be NVIDIA's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mirab.backends.local import DetectionError, detect, rundir
from mirab.backends.local.gpus import GpuTable
from mirab.backends.local.hardware import short_type
from mirab.backends.local.sampler import nvml_source
from mirab.model.resources import Cluster, Pool
from mirab.model.units import NodeName, RunId
from tests.backends.rig import Rig, wait_for


class PretendNvml(ModuleType):
    """As much of `pynvml` as is used. `busy`: per cent by index; None = the driver does not tell."""

    def __init__(self, busy: list[int | None], name: str = "NVIDIA H100 80GB HBM3") -> None:
        super().__init__("pynvml")
        self.busy, self.name = busy, name
        self.broken = False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise RuntimeError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.busy)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return self.name

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        if self.busy[handle] is None:
            raise RuntimeError("Not Supported")
        return SimpleNamespace(gpu=self.busy[handle], memory=1)


# --- detection -----------------------------------------------------------------------------------------------------


def test_gpus_that_nvml_tells_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", PretendNvml([0] * 4))
    gpu, cpu = detect().pools
    assert (gpu.name, gpu.gpus_per_node, gpu.gpu_type, len(gpu.nodes)) == ("gpu", 4, "h100", 1)
    assert (cpu.name, cpu.gpus_per_node) == ("cpu", 0)
    assert cpu.slots_per_node == cpu.cpus_per_node >= 1 and gpu.cpus_per_node >= 1


def test_device_files_where_there_is_no_nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = PretendNvml([])
    broken.broken = True
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert detect(devices=str(tmp_path)).pools[0].gpus_per_node == 2


def test_a_machine_without_gpus_is_a_pool_of_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", PretendNvml([]))
    assert [pool.name for pool in detect(devices=str(tmp_path)).pools] == ["cpu"]


def test_gpus_that_are_pretended() -> None:
    cluster = detect(pretend_gpus=8, pretend_nodes=2)
    assert cluster.pools[0].slots == 16 and len(cluster.pools[0].nodes) == 2
    assert [pool.name for pool in detect(pretend_gpus=0).pools] == ["cpu"]


@pytest.mark.parametrize(("gpus", "nodes"), [(-1, 1), (8, 0), (None, 2)])
def test_what_cannot_be_pretended(gpus: int | None, nodes: int) -> None:
    with pytest.raises(DetectionError):
        detect(pretend_gpus=gpus, pretend_nodes=nodes)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("", ""),
    ],
)
def test_types_as_people_call_them(name: str, kind: str) -> None:
    assert short_type(name) == kind


# --- which GPUs ----------------------------------------------------------------------------------------------------


def test_no_gpu_is_given_twice_and_the_same_run_gets_the_same() -> None:
    one, two = NodeName("n1"), NodeName("n2")
    table = GpuTable(Cluster("c", (Pool("gpu", (one, two), 4),)))
    assert table.allocate(RunId("1.1"), [one], 3) == {one: (0, 1, 2)}
    assert table.allocate(RunId("1.1"), [one], 3) == {one: (0, 1, 2)}
    assert table.allocate(RunId("2.1"), [one, two], 2) is None
    assert table.free[two] == [0, 1, 2, 3], "all or nothing"
    assert table.allocate(RunId("2.1"), [one, two], 1) == {one: (3,), two: (0,)}
    table.release(RunId("1.1"))
    table.release(RunId("1.1"))
    assert table.free == {one: [0, 1, 2], two: [1, 2, 3]}


# --- activity ------------------------------------------------------------------------------------------------------


def test_activity_is_sampled_for_each_run_and_kept(tmp_path: Path) -> None:
    busy: list[int | None] = [100, 50, 0, None, 7, 7, 7, 7]
    rig = Rig(tmp_path, nodes=1, activity=lambda: busy, sample_s=0.02)
    try:
        rig.backend.adopt({})
        first, second = rig.start("1", "sleep", "100", gpus=2), rig.start("2", "sleep", "100", gpus=2)
        wait_for(lambda: rig.backend.utilization().get(first) == 0.75, "activity of the first run")
        assert (
            wait_for(lambda: second in rig.backend.utilization(), "the second")
            and rig.backend.utilization()[second] == 0
        )
        rig.cancel(first)
        rig.ended(first)
        records = {record.run_id: record for record in rig.backend.usage_records()}
        assert records[first].activity == 0.75, "kept beyond the end"
    finally:
        rig.leave_nothing()


def test_a_gpu_that_does_not_tell_is_left_out_and_none_that_tells_is_no_number(tmp_path: Path) -> None:
    rig = Rig(tmp_path, nodes=1, activity=lambda: [None] * 8, sample_s=0.02)
    try:
        rig.backend.adopt({})
        run_id = rig.start("1", "sleep", "0.3")
        rig.ended(run_id)
        assert rig.backend.utilization() == {}
        assert rig.backend.usage_records()[0].activity is None
        assert not rig.file(run_id, rundir.ACTIVITY)
    finally:
        rig.leave_nothing()


def test_nvml_is_asked_where_the_gpus_are_real_only() -> None:
    nvml = PretendNvml([30, None])
    real = Cluster("c", (Pool("gpu", (NodeName("n1"),), 2, "h100"),))
    source = nvml_source(real, nvml)
    assert source is not None and source() == [30, None]
    assert nvml_source(detect(pretend_gpus=2), nvml) is None
    assert nvml_source(detect(pretend_gpus=2, pretend_nodes=2), nvml) is None


def test_a_source_that_fails_is_asked_again(tmp_path: Path) -> None:
    asked = []

    def moody() -> list[int | None]:
        asked.append(1)
        if len(asked) < 3:
            raise RuntimeError("GPU is lost")
        return [40] * 8

    rig = Rig(tmp_path, nodes=1, activity=moody, sample_s=0.02)
    try:
        rig.backend.adopt({})
        run_id = rig.start("1", "sleep", "100")
        wait_for(lambda: rig.backend.utilization().get(run_id) == 0.4, "a sample")
    finally:
        rig.leave_nothing()
