"""A read of a server that is lost for a while."""

import pytest
from pymongo.errors import AutoReconnect, OperationFailure

from verifier import ServerLost, VerifierError
from verifier.reads import patiently


def test_a_server_that_comes_back_is_told_once_and_waited_for():
    answers, said = [AutoReconnect("gone"), AutoReconnect("gone"), 7], []

    def read():
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    assert patiently("read it", 60, read, said.append) == 7
    assert said == ["cannot read it: gone; trying again for 60 s"]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (AutoReconnect("gone"), ServerLost, "cannot read it: gone"),
        (OperationFailure("no right", 13), VerifierError, "cannot read it: the server refused: no right"),
    ],
)
def test_one_that_does_not_and_one_that_refuses_end_in_words(error, kind, words):
    def read():
        raise error

    with pytest.raises(kind, match=words):
        patiently("read it", 0.01, read)
