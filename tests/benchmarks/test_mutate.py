"""What a run of `scripts/mutate` comes to, from what mutmut and PIT report."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.mutate import copied_as, pit_score, score


def test_a_score_is_of_what_a_test_reaches() -> None:
    found = score({"m.a": 1, "m.b": 36, "m.c": 0, "m.d": 33, "m.e": None, "m.f": 2})
    assert found.survivors == ["m.c"]
    assert found.line == "66.7% (2 of 3 noticed; no test reaches 1 more; 2 were not run in time)"


def test_a_part_of_which_nothing_ran_has_no_score() -> None:
    assert score({"m.a": 33}).line == "nothing was run (0 of 0 noticed; no test reaches 1 more)"


def test_the_score_of_java_names_where_survivors_are() -> None:
    mutation = (
        "<mutation status='{}'><mutatedClass>io.A</mutatedClass><mutatedMethod>b</mutatedMethod>"
        "<lineNumber>7</lineNumber><description>removed call</description></mutation>"
    )
    states = ("KILLED", "TIMED_OUT", "RUN_ERROR", "SURVIVED", "NO_COVERAGE")
    report = f"<mutations>{''.join(map(mutation.format, states))}</mutations>"
    found = pit_score(ElementTree.fromstring(report))
    assert found.survivors == ["io.A.b:7: removed call"]
    assert found.line == "75.0% (3 of 4 noticed; no test reaches 1 more)"


def test_the_verifier_is_copied_to_where_it_is_imported_from_and_no_other_file_of_it_replaces_one() -> None:
    assert copied_as("verifier/towpath_verifier/plan.py") == "towpath_verifier/plan.py"
    assert copied_as("verifier/pyproject.toml") == "verifier/pyproject.toml"
    assert copied_as("tests/verifier/test_merge.py") == "tests/verifier/test_merge.py"
