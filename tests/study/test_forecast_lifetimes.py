"""What is learned of lengths: Kaplan and Meier's curve against its definition, and draws that honour what is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirab.study.lifetimes import Lifetimes

SEEN = st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=25)


def survival(seen: list[tuple[int, bool]], at: int) -> float:
    """Share that lasts longer than `at`, by the definition: a product over the instants of ends."""
    alive = 1.0
    for end in sorted({span for span, ended in seen if ended and span <= at}):
        at_risk = sum(span >= end for span, _ in seen)
        ends = sum(span == end and ended for span, ended in seen)
        alive *= 1 - ends / at_risk
    return alive


@given(SEEN, st.integers(0, 30), st.floats(0.001, 0.999))
def test_a_draw_is_the_quantile_of_what_lasts_beyond_the_past(
    seen: list[tuple[int, bool]], past: int, chance: float
) -> None:
    drawn = Lifetimes((float(span), ended) for span, ended in seen).draw(chance, past)
    wanted = survival(seen, past) * (1 - chance)
    if drawn is None:
        assert survival(seen, 30) > wanted - 1e-9 or not any(ended and span > past for span, ended in seen)
        return
    assert drawn > past
    assert survival(seen, int(drawn)) <= wanted + 1e-9
    assert survival(seen, int(drawn) - 1) >= wanted - 1e-9


def test_those_that_have_not_ended_make_the_rest_longer() -> None:
    ended = Lifetimes((float(span), True) for span in range(1, 11))
    going = Lifetimes([*((float(span), True) for span in range(1, 11)), *[(5.0, False)] * 10])
    assert ended.draw(0.5) == 5
    assert going.draw(0.5) is not None
    assert (going.draw(0.6) or 99) > (ended.draw(0.6) or 0)


def test_nothing_is_made_up_beyond_what_was_seen() -> None:
    assert Lifetimes().draw(0.5) is None
    assert Lifetimes([(10.0, True)]).draw(0.5, past=10) is None
    assert Lifetimes([(10.0, False)]).draw(0.5) is None
    kept = Lifetimes(kept=2)
    for span in (1.0, 2.0, 3.0):
        kept.add(span)
    assert (len(kept), kept.draw(0.1)) == (2, 2)
