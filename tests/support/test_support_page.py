"""What the tests of pages accept as what a page shows."""

import pytest

from tests.support.page import Command, commands, differs


def test_commands_are_what_follows_a_dollar_in_console_blocks() -> None:
    page = "a\n```console\n$ one 'x'\nprinted\n\n$ two\n```\n```sh\n$ three\n```\n"
    assert commands(page) == [Command("one 'x'", ["printed"]), Command("two", [])]


@pytest.mark.parametrize(
    ("shown", "printed", "first"),
    [
        (["a 1,024  b"], "a 7 b\n", None),
        (["a", "…"], "a\nb\nc\n", None),
        (["a", "…", "c"], "a\nb\nc\n", None),
        (["a", "c"], "a\nb\nc\n", "c"),
        (["a", "…", "d"], "a\nb\nc\n", "d"),
        (["a"], "a\nb\n", "b"),
        ([], "an error\n", "an error"),
        (["0 s"], "", "0 s"),
    ],
)
def test_a_page_shows_what_is_printed(shown: list[str], printed: str, first: str | None) -> None:
    assert differs(shown, printed) == first
