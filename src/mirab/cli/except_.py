"""`mirab except`: exceptions to the rules, each with an owner, a reason, an approver and an end."""

from __future__ import annotations

from typing import Any

import click

from mirab.cli.client import Client, at
from mirab.cli.clock import near
from mirab.cli.connection import JSON_OPTION, connected
from mirab.cli.grid import Column, table, terminal_width
from mirab.cli.output import emit, say, to_json

KINDS = ("longer-minimum", "guaranteed", "extra-share", "drain-pause", "reservation", "rollout")
COLUMNS = (
    Column("ID"),
    Column("KIND"),
    Column("ACCOUNT", least=8),
    Column("STATE"),
    Column("BEGIN"),
    Column("END"),
    Column("OWNER", least=6),
    Column("APPROVER", least=6),
    Column("GPU-H"),
    Column("REASON", least=12),
)
PAST = ("over", "refused", "revoked", "lapsed")

WHY = click.option("--why", metavar="TEXT", default="", help="Why; it stands in the log beside your name.")
REASON = click.option("--reason", "--why", "reason", metavar="TEXT", required=True, help="Why it is needed.")
BEGIN = click.option("--from", "begin", metavar="WHEN", help="From when on: a date, or 2d from now. Default: at once.")
END = click.option("--until", "end", metavar="WHEN", help="Its end: a date, or 5d from now.")
LASTS = click.option("--for", "lasts", metavar="TIME", help="Its length in place of its end, such as 3d.")
TIMEZONE = click.option("--timezone", metavar="ZONE", help="Of dates without one. Default: UTC.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Exceptions: asked for with a reason, approved by somebody else, ended by themselves, shown with their cost."""


@command.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("account")
@REASON
@BEGIN
@END
@LASTS
@click.option("--cap", metavar="TIME", default="0", help="longer-minimum: what the cap becomes, such as 24h.")
@click.option("--share", metavar="SHARE", default="0%", help="extra-share: of the whole cluster, such as 10%.")
@click.option("--donor", metavar="ACCOUNT", default="", help="extra-share: who gives it. Default: the unassigned rest.")
@click.option("--nodes", metavar="N", type=click.IntRange(0), default=0, help="reservation: nodes.")
@click.option("--gpus-per-node", metavar="N", type=click.IntRange(0), default=0, help="reservation: GPUs of each.")
@click.option("--pool", metavar="NAME", default="", help="reservation: of this pool only.")
@click.option("--node", metavar="NAME", default="", help="drain-pause: the node whose drain stops nothing meanwhile.")
@TIMEZONE
@JSON_OPTION
@connected
def request(client: Client, kind: str, account: str, as_json: bool, **given: Any) -> None:
    """Ask for an exception of KIND for ACCOUNT. Nothing changes until somebody else approves it.

    longer-minimum: runs may declare a minimum up to --cap. guaranteed: nobody stops its runs for another. extra-share:
    --share of the cluster more. drain-pause: no drain stops what runs on --node, which takes nothing new meanwhile.
    reservation: --nodes of --gpus-per-node from a fixed instant on. rollout: it may be governed although its gates are
    not met.
    """
    tell_asked(client.post("/exceptions", wanted(kind, account, given)), as_json)


def wanted(kind: str, account: str, given: dict[str, Any]) -> dict[str, Any]:
    """The request as the API takes it.

    Raises:
        click.UsageError: no end, or two.
    """
    if (given["end"] is None) == (given["lasts"] is None):
        raise click.UsageError("every exception ends: say --until or --for")
    names = ("reason", "cap", "share", "donor", "nodes", "gpus_per_node", "pool", "node")
    body = {name: given[name] for name in names if name in given}
    for name in ("begin", "end"):
        if given[name] is not None:
            body[name] = _instant(given[name], given["timezone"])
    if given["lasts"] is not None:
        body["lasts"] = _length(given["lasts"])
    return {"kind": kind, "account": account, **body}


def _length(text: str) -> str:
    """A length of time that is more than none."""
    from mirab.model.units import parse_duration

    try:
        lasts = parse_duration(text)
    except ValueError:
        lasts = 0
    if not lasts:
        raise click.UsageError(f"--for: {text!r} is no length that an exception can have: write one such as 6h or 3d")
    return text


def _instant(text: str, timezone: str | None) -> str:
    """A date, or a time from now, in ISO form."""
    from datetime import UTC, datetime

    from mirab.cli.budgettools import calendar_of, now_ms
    from mirab.model.units import parse_duration

    calendar = calendar_of(timezone)
    try:
        ms = calendar.unix_ms(text)
    except ValueError:
        try:
            ms = now_ms() + parse_duration(text)
        except ValueError as error:
            raise click.UsageError(f"{text!r} is no date and no time from now: write 2027-03-01 or 3d") from error
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat()


def tell_asked(made: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(to_json(made))
        return
    emit(made["id"])
    note = f" Note: {made['note']}." if made["note"] else ""
    say(f"{made['id']} is asked for: {made['kind']} for {made['account']} until {near(made['end'])}; it {_costs(made)}."
        f"{note} Somebody with the right to it approves it: mirab except approve {made['id']}")  # fmt: skip


def _costs(case: dict[str, Any]) -> str:
    text: str = case["cost"]
    if case["gpu_hours"] is None:
        return text
    payers = sorted(case["paid_by"].items(), key=lambda each: (-each[1], each[0]))[:3]
    paid = f", paid by {', '.join(f'{path} ({hours:,.0f})' for path, hours in payers)}" if payers else ""
    return f"sets {case['gpu_hours']:,.0f} GPU-hours aside{paid} ({text})"


@command.command()
@click.argument("case_id", metavar="ID")
@WHY
@JSON_OPTION
@connected
def approve(client: Client, case_id: str, why: str, as_json: bool) -> None:
    """Grant the exception ID; not your own request, unless nobody else could."""
    _tell(client.post(at("exceptions", case_id, "approve"), {"why": why}), as_json)


@command.command()
@click.argument("case_id", metavar="ID")
@WHY
@JSON_OPTION
@connected
def refuse(client: Client, case_id: str, why: str, as_json: bool) -> None:
    """Say no to the request ID, and why."""
    _tell(client.post(at("exceptions", case_id, "refuse"), {"why": why}), as_json)


@command.command()
@click.argument("case_id", metavar="ID")
@WHY
@JSON_OPTION
@connected
def revoke(client: Client, case_id: str, why: str, as_json: bool) -> None:
    """End the exception ID before its end, or take the request back."""
    _tell(client.post(at("exceptions", case_id, "revoke"), {"why": why}), as_json)


def _tell(case: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(to_json(case))
    else:
        over = case["state"] in ("refused", "revoked", "over")
        end = "" if over else f", until {near(case['end'])}"
        say(f"{case['id']}, {case['kind']} for {case['account']}, is {case['state']}{end}.")


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Those that are over, refused or revoked too.")
@JSON_OPTION
@connected
def list_(client: Client, everything: bool, as_json: bool) -> None:
    """Show the exceptions: whose, until when, and the GPU-hours that each sets aside."""
    tell_list(client, as_json, everything)


def tell_list(client: Client, as_json: bool, everything: bool, kind: str | None = None) -> None:
    cases = client.get("/exceptions")["exceptions"]
    shown = [each for each in cases if kind in (None, each["kind"]) and (everything or each["state"] not in PAST)]
    if as_json:
        emit(to_json({"exceptions": shown}))
        return
    emit(table(COLUMNS, [_row(each) for each in shown], terminal_width()))
    for each in shown:
        if each["state"] in ("in force", "to come", "asked"):
            say(f"{each['id']} {_costs(each)}.")
        if each["ends_soon"]:
            say(f"{each['id']} ends soon, {near(each['end'])}: {each['owner']} should be done by then.")


def _row(case: dict[str, Any]) -> list[str]:
    hours = "-" if case["gpu_hours"] is None else f"{case['gpu_hours']:,.0f}"
    state = f"{case['state']}, ends soon" if case["ends_soon"] else case["state"]
    return [case["id"], case["kind"], case["account"], state, near(case["begin"]), near(case["end"]), case["owner"],
            case["approver"] or "-", hours, case["reason"]]  # fmt: skip
