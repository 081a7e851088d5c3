"""`mirab gate`: is this good enough to roll out? Exit code 6 and the failing numbers if not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mirab.cli.connection import SERVER_OPTION
from mirab.cli.exits import GateNotMetError, UnusableError
from mirab.cli.options import JOBS_OPTION, QUIET_OPTION
from mirab.cli.output import check_input, check_outputs, emit, json_object, reading_report, say, to_json, write_json

if TYPE_CHECKING:
    from mirab.study.gatekeeping import Judged
    from mirab.study.gatesfile import Gates

Report = dict[str, Any]
STOCK = "gates.yaml"
LIVE_S = 660.0
"""Seconds to wait for a live report: the service reads its journal."""


def _example(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        emit(_stock().decode())
        ctx.exit()


def _stock() -> bytes:
    return (files("mirab") / "data" / "scenarios" / STOCK).read_bytes()


@click.command()
@click.argument("report", required=False)
@click.option("--gates", metavar="FILE", help="What must be met (YAML). With --scenarios, default: the stock gates.")
@click.option(
    "--present",
    metavar="REPORT|POLICY",
    help="What the proposal is compared with: a report, or a policy for --scenarios.",
)
@click.option("--proposed", metavar="LABEL|POLICY", help="Which report of a comparison; or the policy for --scenarios.")
@click.option("--scenarios", is_flag=True, help="Replay four stock weeks under both policies, in place of a REPORT.")
@click.option("--live", is_flag=True, help="The last window of the live service, in place of a REPORT.")
@click.option("--window", metavar="TIME", help="With --live: how far back. Default: the policy's window.")
@click.option("--report-to", metavar="FILE", help="With --live: keep the report that was judged too (JSON).")
@SERVER_OPTION
@click.option(
    "--nodes", metavar="N", type=click.IntRange(8, 10_000), default=64, show_default=True, help="Of the stock weeks."
)
@click.option("--days", metavar="N", type=click.IntRange(3, 60), default=7, show_default=True, help="Of each.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the stock weeks.")
@click.option("--sign", metavar="NAME", help="Sign it off by name; only where every gate is met. Needs --keep.")
@click.option("--keep", metavar="FILE", help="Keep the gate report with hashes of what it was made from (JSON).")
@click.option(
    "--verify", metavar="FILE", help="Does a kept gate report still hold? With REPORT and --gates: are they the same?"
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, in place of the table.")
@click.option(
    "--example",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_example,
    help="Print a file of gates to begin with, and exit.",
)
@JOBS_OPTION
@QUIET_OPTION
def command(report: str | None, scenarios: bool, live: bool, verify: str | None, as_json: bool, **given: Any) -> None:
    """Check a replay, or the live service, against a file of gates, and exit with 6 where one is not met.

    REPORT is the JSON of `mirab sim`, `mirab compare` or `mirab whatif`: of a comparison the first is the present and
    the last is proposed.
    """
    if verify is not None:
        _verify(verify, report, given)
        return
    if [scenarios, live, report is not None].count(True) != 1:
        raise click.UsageError("name a REPORT, or --scenarios, or --live")
    if not live and (given["window"] or given["report_to"]):
        raise click.UsageError("--window and --report-to are for --live")
    _check_keeping(given, report)
    gates, content = _gates(given["gates"], scenarios)
    sources = {"gates": (given["gates"] or STOCK, content)}
    if live:
        judged = _of_live(gates, given, sources)
    else:
        judged = _of_scenarios(gates, given) if scenarios else _of_report(str(report), gates, given, sources)
    with reading_report(report, given["present"]):
        _conclude(judged, gates, sources, as_json, given)


def _check_keeping(given: dict[str, Any], report: str | None) -> None:
    if given["sign"] is not None and (given["keep"] is None or not given["sign"].strip()):
        raise click.UsageError("--sign needs a name, and --keep: what is signed off is kept")
    if given["keep"] is not None and Path(given["keep"]).exists():
        raise FileExistsError(17, "File exists", given["keep"])
    check_outputs((given["keep"], given["report_to"]), (report, given["gates"]))


def _gates(name: str | None, scenarios: bool) -> tuple[Gates, bytes]:
    from mirab.logs.errors import LogError
    from mirab.study.gatesfile import parse_gates

    if name is None and not scenarios:
        raise click.UsageError("--gates is missing: `mirab gate --example` prints a file to begin with")
    content = _stock() if name is None else check_input(name).read_bytes()
    try:
        return parse_gates(content, Path(name or STOCK)), content
    except LogError as error:
        raise UnusableError(str(error)) from error


# --- reports ----------------------------------------------------------------------------------------------------------
def _of_report(name: str, gates: Gates, given: dict[str, Any], sources: dict[str, tuple[str, bytes]]) -> list[Judged]:
    from mirab.study.gatekeeping import Judged
    from mirab.study.gates import findings

    content = check_input(name).read_bytes()
    sources["report"] = (Path(name).name, content)
    with reading_report(name, given["present"]):
        proposed, present = _chosen(_read(name, content), name, given["proposed"])
        present = _present(given, sources) or present
        return [Judged(proposed, findings(gates, proposed, present))]


def _present(given: dict[str, Any], sources: dict[str, tuple[str, bytes]]) -> Report | None:
    """The report that --present names."""
    if given["present"] is None:
        return None
    content = check_input(given["present"]).read_bytes()
    sources["present"] = (Path(given["present"]).name, content)
    return _chosen(_read(given["present"], content), given["present"], None)[0]


def _of_live(gates: Gates, given: dict[str, Any], sources: dict[str, tuple[str, bytes]]) -> list[Judged]:
    """The last window of the service, judged as a replay is."""
    from mirab.cli.client import open_client
    from mirab.study.gatekeeping import Judged
    from mirab.study.gates import findings

    with open_client(given["server"]) as client:
        query = {"window": given["window"]} if given["window"] else None
        report: Report = client.get("/report", query, timeout=LIVE_S)
        sources["report"] = (f"live report of {client.address}", to_json(report).encode())
    if given["report_to"] is not None:
        write_json(report, given["report_to"])
    with reading_report(given["present"]):
        return [Judged(report, findings(gates, report, _present(given, sources)))]


def _read(name: str, content: bytes) -> Report:
    return json_object(name, content, "give the --json of mirab sim, compare or whatif")


def _chosen(found: Report, name: str, label: str | None) -> tuple[Report, Report | None]:
    """What is proposed, and the present it is compared with."""
    reports = found.get("reports")
    if isinstance(reports, dict) and {"present", "proposed"} <= set(reports):
        return _whole(reports["proposed"], name), _whole(reports["present"], name)
    if isinstance(reports, list) and reports:
        return _of_comparison(found, [_whole(each, name) for each in reports], name, label)
    if label is not None:
        raise click.UsageError(f"--proposed: {name} is one report, not a comparison of several")
    return _whole(found, name), None


def _of_comparison(found: Report, reports: Sequence[Report], name: str, label: str | None) -> tuple[Report, Report]:
    labels = [str(each) for each in found.get("labels", [])]
    if label is None and len(reports) > 2:
        raise click.UsageError(f"--proposed is missing: {name} compares {', '.join(labels)}; say which is proposed")
    if label is None:
        return reports[-1], reports[0]
    if label not in labels:
        raise click.UsageError(f"--proposed: {name} has no {label!r}, but {', '.join(labels)}")
    return reports[labels.index(label)], reports[0]


def _whole(report: object, name: str) -> Report:
    if isinstance(report, dict) and {"metrics", "by_account", "input", "policy"} <= set(report):
        return report
    raise UnusableError(f"{name} is no report of a replay: give the --json of mirab sim, compare or whatif.")


# --- the stock scenarios ----------------------------------------------------------------------------------------------
def _of_scenarios(gates: Gates, given: dict[str, Any]) -> list[Judged]:
    """Each stock week under the present and the proposed policy, on the same arrivals."""
    from mirab.cli.inputs import choose_policy
    from mirab.cli.parallel import replayed_all
    from mirab.cli.replaying import measured
    from mirab.sim.scenarios import SCENARIOS, scenario
    from mirab.sim.synthetic import SynthOptions
    from mirab.study.gatekeeping import Judged
    from mirab.study.gates import findings

    present = choose_policy(given["present"] or "priority")
    proposed = choose_policy(given["proposed"] or "budget")
    options = SynthOptions(nodes=given["nodes"], days=given["days"], seed=given["seed"])
    traces = {name: scenario(name, options) for name in SCENARIOS}
    pairs = [(trace, policy) for trace in traces.values() for policy in (present, proposed)]
    reports = replayed_all(measured, pairs, jobs=given["jobs"], quiet=given["quiet"])
    judged = []
    for place, name in enumerate(traces):
        before, after = reports[2 * place : 2 * place + 2]
        judged.append(Judged(after, findings(gates, after, before, name, decisions=not place), name))
    return judged


# --- the end ----------------------------------------------------------------------------------------------------------
def _conclude(
    judged: Sequence[Judged], gates: Gates, sources: dict[str, tuple[str, bytes]], as_json: bool, given: dict[str, Any]
) -> None:
    """Tell, keep, and fail where a gate is not met."""
    from mirab.cli.results import show
    from mirab.study.gatekeeping import all_failures, gate_sections, judgement, kept

    told = judgement(judged, gates)
    if as_json:
        emit(to_json(told))
    else:
        show(gate_sections(judged))
    failures = all_failures(judged)
    if given["keep"] is not None and not (failures and given["sign"]):
        signed = (given["sign"].strip(), datetime.now(UTC).isoformat(timespec="seconds")) if given["sign"] else None
        write_json(kept(told, sources, signed), given["keep"])
    if failures:
        refused = " It was not signed off, and nothing was kept." if given["sign"] else ""
        raise GateNotMetError(f"{failures}.{refused}")


def _verify(name: str, report: str | None, given: dict[str, Any]) -> None:
    """Whether a kept gate report is what it was, and made from what is named beside it."""
    from mirab.study.gatekeeping import broken

    made = _read(name, check_input(name).read_bytes())
    named = {"report": report, "gates": given["gates"], "present": given["present"]}
    sources = {role: check_input(path).read_bytes() for role, path in named.items() if path is not None}
    wrong = broken(made, sources)
    if wrong:
        _refuse(name, wrong)
    signed = made.get("signed")
    by = f"signed off by {signed['by']} on {signed['at'][:10]}" if signed else "not signed off"
    seen = f", made from this {' and this '.join(sources)}" if sources else ""
    say(f"{name} holds: {'every gate was met' if made.get('met') else 'NOT every gate was met'}, {by}{seen}.")


def _refuse(name: str, wrong: Sequence[str]) -> NoReturn:
    raise GateNotMetError(f"{name} does not hold: {'; '.join(wrong)}. Check the gates anew and have them signed off.")
