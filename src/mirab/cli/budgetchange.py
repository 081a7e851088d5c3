"""`mirab budget set|review|revert`: decisions, each one changeset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mirab.cli.budgetservice import SERVER, SERVICE, account_of, book_of, meant, one, proposed, service_book
from mirab.cli.budgettools import (
    AUTHOR,
    BASE,
    EVIDENCE,
    FROM,
    JSON,
    REASON,
    TIMEZONE,
    author_of,
    calendar_of,
    draw,
    evidence_of,
    moment,
    now_ms,
    opened,
    sentences,
    tell_changeset,
)
from mirab.cli.client import open_client
from mirab.cli.output import check_input, emit, to_json

if TYPE_CHECKING:
    from mirab.logs.moments import Calendar
    from mirab.model.accounts import Budget, Budgets
    from mirab.model.changesets import ChildrenSet
    from mirab.study.budgetbook import Book
    from mirab.study.budgethistory import Draft

F = TypeVar("F", bound=Callable[..., Any])


def _deciding(command: F) -> F:
    for option in reversed((AUTHOR, REASON, FROM, BASE, EVIDENCE, TIMEZONE, JSON, SERVER)):
        command = option(command)
    return command


@click.command("set")
@click.argument("words", nargs=-1, metavar="[FILE] [ACCOUNT=SHARE]...")
@click.option("--owner", metavar="NAME", help="Who answers for the accounts named.")
@click.option("--review", metavar="DATE", help="When they are to be looked at again.")
@click.option("--hypothesis", metavar="TEXT", help="What they are to achieve.")
@click.option("--gpus-max", metavar="COUNT", help="The most GPUs that they may use at once; none = no cap.")
@click.option("--min-runtime-cap", metavar="SPAN", help="Their longest minimum, such as 4h; none = no cap.")
@click.option("--gang-gpus-max", metavar="COUNT", help="The most GPUs of one of their jobs; none = no cap.")
@click.option(
    "--rename", metavar="OLD=NEW", multiple=True, help="Another name; usage and history stay with the account."
)
@click.option(
    "--merge", metavar="A,B=C", multiple=True, help="Accounts of one parent as one, which takes over their past."
)
@click.option("--close", metavar="ACCOUNT[=HEIR]", multiple=True, help="Share 0 from then on; to HEIR, or to nobody.")
@click.option("--split", metavar="A=X:60%,Y:40%", multiple=True, help="Divide a leaf among children of its own.")
@click.option("--with", "source", metavar="YAML", help="The whole tree of another file, as one changeset.")
@click.option("--as-edited", is_flag=True, help="Record what was edited in FILE by hand.")
@_deciding
def set_(words: tuple[str, ...], source: str | None, as_edited: bool, **given: Any) -> None:
    """Change shares and terms, in one changeset: all of it, or nothing.

    ACCOUNT=SHARE sets a share (language/data=25%); several change together, and an account that is not there is made.
    POOL:ACCOUNT=SHARE sets a share of that pool alone (h100:vision=50%), =none takes it away. ACCOUNT alone changes
    what --owner, --review, --hypothesis and the caps say. What somebody else has changed since --base is told, not
    overwritten.
    """
    from mirab.study.budgetbook import take_in

    file, shares = meant(words, given["server"])
    calendar = calendar_of(given["timezone"])
    structure = any(given[name] for name in ("rename", "merge", "close", "split"))
    if ((as_edited or source) and (shares or structure)) or (as_edited and (source or given["begin"])):
        raise click.UsageError("--as-edited and --with stand alone: they are a whole tree")
    if as_edited:
        if file is None:
            raise click.UsageError("--as-edited needs FILE: the service is not edited by hand")
        with sentences():
            made = take_in(check_input(file), author_of(given["author"]), given["reason"], now_ms, calendar)
        tell_changeset(file, opened(file, calendar).history, made, given["as_json"])
        return
    if not (shares or structure or source):
        raise click.UsageError("nothing is to change: write ACCOUNT=SHARE, or --rename, --merge, --close or --split")
    wanted = _wanted_tree(source, calendar) if source else None
    _decide(file, calendar, given, lambda tree, date: _edits(tree, shares, wanted, date, given))


def _wanted_tree(source: str, calendar: Calendar) -> Budgets:
    with sentences():
        return opened(source, calendar).at(now_ms())


def _edits(
    tree: Budgets, shares: Sequence[str], wanted: Budgets | None, date: str, given: Mapping[str, Any]
) -> list[ChildrenSet]:
    """What was asked for as edits, one after the other on the tree that they meet."""
    from mirab.model.changesets import applied
    from mirab.study import budgetedits as edits

    made: list[ChildrenSet] = []

    def add(more: Callable[[Budgets], list[ChildrenSet]]) -> None:
        made.extend(more(applied(tree, made)))

    if wanted is not None:
        add(lambda now: edits.difference(now, wanted))
    for text in given["rename"]:
        old, new = _renaming(text)
        add(lambda now, old=old, new=new: edits.renamed(now, old, new))  # type: ignore[misc]
    for text in given["merge"]:
        sources, into = _pair("merge", text, "A,B=C")
        add(lambda now, sources=sources, into=into: edits.merged(now, sources.split(","), into))  # type: ignore[misc]
    for text in given["split"]:
        path, parts = _pair("split", text, "A=X:60%,Y:40%")
        add(lambda now, path=path, parts=parts: edits.split(now, path, _parts(parts)))  # type: ignore[misc]
    if shares:
        add(lambda now: edits.terms_changed(now, _terms(shares, given)))
    for text in given["close"]:
        path, _, heir = text.partition("=")
        add(lambda now, path=path, heir=heir: edits.closed(now, path, date, heir))  # type: ignore[misc]
    return _together(tree, made)


def _together(tree: Budgets, made: list[ChildrenSet]) -> list[ChildrenSet]:
    """The same in as few edits as can be, where nothing was renamed or merged on the way."""
    from mirab.model.changesets import applied
    from mirab.study.budgetedits import difference

    return difference(tree, applied(tree, made))


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        raise click.UsageError(f"--{option}: {text!r} is not of the form {form}")
    return left, right


def _renaming(text: str) -> tuple[str, str]:
    """The account's path, and its new name; the name may be told with the path of its parent, which stays.

    Raises:
        ValueError: another parent, or a name that none can have.
    """
    from mirab.model.accounts import parent_of

    old, new = _pair("rename", text, "OLD=NEW")
    parent, _, name = new.rpartition("/")
    if not name:
        raise click.UsageError(f"--rename: {text!r} is not of the form OLD=NEW")
    if parent and parent != parent_of(old):
        raise ValueError(f"{old} cannot become {new}: an account keeps its parent; write --rename {old}={name}")
    return old, name


def _parts(text: str) -> list[Budget]:
    from mirab.model.accounts import Budget
    from mirab.model.units import parse_share

    parts = [part.partition(":") for part in text.split(",")]
    return [Budget(name.strip(), parse_share(share)) for name, _, share in parts]


def _terms(shares: Sequence[str], given: Mapping[str, Any]) -> dict[str, dict[str, object]]:
    from mirab.model.accounts import LEDGER_MARK, ledger_of, plain

    common = {name: given[name] for name in ("owner", "hypothesis") if given[name] is not None} | _caps(given)
    if given["review"] is not None:
        common["review"] = _day("--review", given["review"])
    found: dict[str, dict[str, object]] = {}
    seen: set[str] = set()
    for text in shares:
        path, equals, share = text.partition("=")
        if path in seen:
            raise ValueError(f"{path} is named twice: once is enough")
        seen.add(path)
        if LEDGER_MARK in path and not ledger_of(path).strip():
            raise ValueError(f"{path}: no pool stands before the colon; write POOL:ACCOUNT=SHARE, or ACCOUNT=SHARE")
        terms = found.setdefault(plain(path).strip("/"), dict(common))
        if equals:
            _share_term(terms, ledger_of(path).strip(), share.strip())
        elif not terms:
            raise ValueError(f"{path}: nothing is to change; write {path}=SHARE, or what else is to change")
    return found


def _share_term(terms: dict[str, object], pool: str, share: str) -> None:
    """A share of all, or of one pool; ``none`` takes the latter away."""
    from mirab.model.units import parse_share

    if not pool:
        terms["share"] = parse_share(share)
        return
    held = terms.setdefault("pool_shares", {})
    assert isinstance(held, dict)
    held[pool] = None if share == "none" else parse_share(share)


def _day(option: str, text: str) -> str:
    """The day that a person named; an empty text is none.

    Raises:
        click.UsageError: it is no day.
    """
    from mirab.logs.fields import day

    try:
        return day(text) if text else ""
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _caps(given: Mapping[str, Any]) -> dict[str, object]:
    """The caps that were named; ``none`` takes one away."""
    from mirab.logs.fields import count, span
    from mirab.model.accounts import CAPS

    found: dict[str, object] = {}
    for name in CAPS:
        text = given[name]
        if text is not None:
            try:
                found[name] = None if text == "none" else (span if name == "min_runtime_cap" else count)(text)
            except ValueError as error:
                raise ValueError(f"--{name.replace('_', '-')}: {error}") from None
    return found


@click.command()
@click.argument("words", nargs=-1, metavar="[FILE] [ACCOUNT]")
@click.option("--outcome", metavar="TEXT", help="What was found, beside what the budget was to achieve.")
@click.option("--next", "next_review", metavar="DATE", help="When to look again. Default: never.")
@_deciding
def review(words: tuple[str, ...], outcome: str | None, next_review: str | None, **given: Any) -> None:
    """The reviews that are due; with ACCOUNT and --outcome, hold one and record what was found."""
    from mirab.study.budgettext import day, review_sections, reviews

    file, rest = meant(words, given["server"])
    account = account_of(rest)
    calendar = calendar_of(given["timezone"])
    if not account:
        today = day(now_ms())
        with sentences():
            budgets = book_of(file, given["server"], calendar).at(now_ms())
        if given["as_json"]:
            due = [{"account": path, "review": each.review, "owner": each.owner, "hypothesis": each.hypothesis}
                   for path, each in reviews(budgets, today)]  # fmt: skip
            emit(to_json({"due": due}))
        else:
            draw(review_sections(budgets, today))
        return
    if not outcome:
        raise click.UsageError("--outcome is missing: say what was found")
    from mirab.study.budgetedits import reviewed

    given["reason"] = given["reason"] or f"review of {account}"
    again = _day("--next", next_review or "")
    _decide(file, calendar, given, lambda tree, _: reviewed(tree, account, outcome, again))


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[FILE] VERSION")
@_deciding
def revert(words: tuple[str, ...], **given: Any) -> None:
    """Take a decision back, as a decision of its own: nothing is erased.

    One that is planned is cancelled. One whose accounts were changed again since is told, and stays.
    """
    from mirab.study.budgethistory import Draft, reverting
    from mirab.study.budgettext import day

    file, rest = meant(words, given["server"])
    version = _version(one(rest, "version"))
    calendar = calendar_of(given["timezone"])

    def make(book: Book, now: int) -> Draft:
        at = moment(given["begin"], calendar) if given["begin"] else None
        target = book.history.version(version)
        edits = reverting(book.history, version, now, day(now))
        at = at if edits else target.effective_at
        base = book.history.head if given["base"] is None else given["base"]
        return Draft(_author(file, given), given["reason"], base, edits, at, version, evidence_of(given["evidence"]))

    _record(file, calendar, given, make)


def _version(text: str) -> int:
    if not (text.isdigit() and text.isascii()):
        raise click.UsageError(f"{text or 'nothing'!r} is no version: `mirab budget log` shows their numbers")
    return int(text)


def _decide(
    file: str | None, calendar: Calendar, given: Mapping[str, Any], edits: Callable[[Budgets, str], list[ChildrenSet]]
) -> None:
    """Record what was asked for, on the tree that it will meet."""
    from mirab.study.budgethistory import Draft
    from mirab.study.budgettext import day

    now = now_ms()
    at = moment(given["begin"], calendar) if given["begin"] else None
    at = None if at is not None and day(at) == day(now) and at <= now else at
    author, evidence = _author(file, given), evidence_of(given["evidence"])

    def make(book: Book, now: int) -> Draft:
        when = now if at is None else at
        base = book.history.head if given["base"] is None else given["base"]
        made = tuple(edits(book.history.at(when), day(when)))
        return Draft(author, given["reason"], base, made, at, 0, evidence)

    _record(file, calendar, given, make)


def _author(file: str | None, given: Mapping[str, Any]) -> str:
    """Who decides; the service knows by itself.

    Raises:
        click.UsageError: an author for a decision of the service.
    """
    if file is not None:
        return author_of(given["author"])
    if given["author"] is not None:
        raise click.UsageError("--author is for files: the service knows who you are")
    return "you"


def _record(file: str | None, calendar: Calendar, given: Mapping[str, Any], make: Callable[[Book, int], Draft]) -> None:
    """One changeset, in the file's history or in the service's."""
    from mirab.study.budgetbook import change

    if file is None:
        with open_client(given["server"]) as client, sentences():
            book = service_book(client)
            made, history = proposed(client, make(book, book.history.later(now_ms())))
    else:
        with sentences():
            made = change(check_input(file), make, author_of(given["author"]), now_ms, calendar)
        history = opened(file, calendar).history
    tell_changeset(file or SERVICE, history, made, given["as_json"])
