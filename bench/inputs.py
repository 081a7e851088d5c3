"""Inputs of the benches by a short spec: a folder of the reference's form, a synthetic log, a stock scenario."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from mirab.logs.detect import load
from mirab.logs.folder import own_folder
from mirab.model.policy import Policy, named, with_settings
from mirab.model.trace import Trace
from mirab.model.units import parse_duration
from mirab.sim.scenarios import SCENARIOS, scenario
from mirab.sim.synthetic import SynthOptions, synthesize


def load_trace(spec: str) -> Trace:
    """`DIR`, `synth[:seed=2,days=7,...]` or `SCENARIO[:seed=2,...]`.

    Raises:
        ValueError: neither a folder nor a known name, or an unknown option.
    """
    name, _, settings = spec.partition(":")
    if name == "synth":
        return synthesize(synth_options(settings))
    if name in SCENARIOS:
        options = synth_options(settings)
        return scenario(name, options if "days=" in settings else replace(options, days=7))
    if own_folder(Path(spec)) is not None:
        return load(Path(spec))
    raise ValueError(f"{spec!r} is no folder with workloads.csv, not synth:..., and none of {', '.join(SCENARIOS)}")


def synth_options(settings: str) -> SynthOptions:
    """Options out of `name=number,...`."""
    known = {field.name for field in fields(SynthOptions)}
    options = SynthOptions()
    for setting in filter(None, settings.split(",")):
        name, _, value = setting.partition("=")
        if name not in known:
            raise ValueError(f"no synth option {name!r}: known are {', '.join(sorted(known))}")
        number = float(value) if name == "load" else int(value)
        options = replace(options, **{name: number})  # type: ignore[arg-type]
    return options


def load_policy(name: str, settings: list[str]) -> Policy:
    """A stock policy with `field=value` settings; durations with a unit, `none` for None."""
    policy = named(name)
    for setting in settings:
        field, _, value = setting.partition("=")
        if field not in {each.name for each in fields(Policy)}:
            raise ValueError(f"no policy setting {field!r}")
        policy = with_settings(policy, **{field: _value(getattr(policy, field), value)})
    return policy


def _value(current: object, text: str) -> object:
    if isinstance(current, str) and text != "none":
        return text
    if text == "none":
        return "none" if isinstance(current, str) else None
    return int(text) if text.isdigit() else parse_duration(text)


def default_input() -> str:
    """The reference log where the shared data lie beside the checkout, else a synthetic month."""
    reference = shared_data() / "reference"
    return str(reference) if own_folder(reference) is not None else "synth:seed=1"


def shared_data() -> Path:
    """`shared/data` beside the checkout; it need not exist."""
    return Path(__file__).resolve().parents[2] / "shared" / "data"
