"""Whether the store answers: asked seldom, and never waited for longer than its patience."""

from __future__ import annotations

from threading import Event as Flag
from threading import Thread, Timer

from mirab.service.watch import StoreWatch
from tests.service.doubles import until


def test_it_is_asked_once_for_many_who_want_to_know() -> None:
    asked: list[int] = []
    watch = StoreWatch(lambda: asked.append(1) or "", "the store", fresh=3_600)  # type: ignore[func-returns-value]
    assert [watch.trouble() for _ in range(5)] == [""] * 5
    assert len(asked) == 1


def test_what_it_says_is_asked_again_when_it_is_old() -> None:
    said = iter(["it does not answer (refused)", ""])
    watch = StoreWatch(lambda: next(said), "the store", fresh=0)
    assert watch.trouble() == "it does not answer (refused)"
    assert watch.trouble() == ""


def test_one_that_is_silent_is_given_up_and_not_asked_twice_meanwhile() -> None:
    asked: list[int] = []
    answer = Flag()

    def ask() -> str:
        asked.append(1)
        answer.wait(60)
        return ""

    watch = StoreWatch(ask, "the store", patience=0.05, fresh=0)
    assert watch.trouble() == "the store does not answer"
    assert watch.trouble() == "the store does not answer" == watch.last_trouble()
    assert len(asked) == 1
    answer.set()
    until(lambda: watch.last_trouble() == "")


def test_a_process_that_has_slept_does_not_take_its_own_sleep_for_silence() -> None:
    answer = Flag()
    watch = StoreWatch(lambda: "" if answer.wait(60) else "late", "the store", patience=60)
    assert watch.last_trouble() == ""
    assert watch._asked_at is not None
    watch._asked_at -= 3_600
    assert watch.last_trouble() == "the store does not answer", "as far as one can tell without waiting"
    Timer(0.05, answer.set).start()
    assert watch.trouble() == ""


def test_who_does_not_wait_hears_what_was_known_last() -> None:
    watch = StoreWatch(lambda: "it is gone", "the store")
    threads = [Thread(target=watch.last_trouble) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    until(lambda: watch.last_trouble() == "it is gone")


def test_a_question_that_fails_is_trouble() -> None:
    def ask() -> str:
        raise OSError("no more files")

    assert StoreWatch(ask, "the store").trouble() == "the store cannot be asked: OSError: no more files"
