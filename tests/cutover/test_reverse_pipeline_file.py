"""The pipeline file of the way back: read, it is the pipeline of the other direction, and nothing else."""

import os
import re
import stat
from itertools import product

import pytest

from tests.config.test_pipeline_file import MINIMAL, PLAIN
from tests.support.pipeline import pipeline_text
from tests.support.sessions import session_of
from towpath.config.loading import parse, read
from towpath.config.namespaces import Selection
from towpath.config.pipeline import Capture, Log, Run
from towpath.cutover.reverse_pipeline import (
    checked_reverse_file,
    refuse_other_namespaces,
    refuse_outdated,
    renamed_patterns,
    reverse_file_text,
    reverse_selection,
    write_reverse_file,
)
from towpath.errors import Refused, TowpathError

PIPELINE = pipeline_text(*(f"mongodb://{side}/?replicaSet=rs0" for side in ("source", "destination")))
NAMES = [f"{database}.{name}" for database, name in product(("a", "b", "towpath"), ("x", "y", "z", "x2"))]


@pytest.mark.parametrize(
    ("include", "exclude", "renames"),
    [
        (("a.*",), (), {}),
        (("*.*",), (), {}),
        (("a.x",), (), {"a.x": "b.y"}),
        (("a.*",), (), {"a.x": "b.y"}),
        (("a.*", "b.z"), ("a.y",), {"a.x": "b.x"}),
        (("a.*",), ("a.x2",), {"a.x": "a.x2"}),  # the name is taken at the source, by what stays out
        (("a.x", "a.y"), (), {"a.x": "a.y", "a.y": "a.x"}),
        (("a.*",), (), {"a.x": "a.y", "a.y": "a.z", "a.z": "b.z"}),
        (("a.*",), ("a.x*",), {"a.x": "b.x", "a.y": "b.y"}),  # a.x is not taken in
        (("a.x*", "b.x"), (), {"a.x": "a.x"}),
        (("*.x",), ("b.*",), {"a.x": "a.y"}),
    ],
)
def test_the_way_back_takes_in_exactly_what_is_written(include, exclude, renames):
    there, to = Selection(include, exclude), renames
    back, fro = reverse_selection(there, to)
    taken = [name for name in NAMES if there.matches(name) and not name.startswith("towpath.")]
    moved = {to[name] for name in taken if to.get(name, name) != name}
    written = {to.get(name, name): name for name in sorted(taken, key=lambda name: to.get(name, name) != name)}
    assert {name: fro.get(name, name) for name in NAMES if back.matches(name)} == written
    assert moved <= written.keys()


def test_what_cannot_be_said_by_patterns_is_refused():
    with pytest.raises(Refused, match=r"a\.x cannot .*: it is written to b\.x, which a pattern of .* exclude matches"):
        reverse_selection(Selection(("*.*",), ("b.*",)), {"a.x": "b.x"})
    with pytest.raises(Refused, match=r"a\.x and a\.y are both written to b\.x"):
        reverse_selection(Selection(("a.*",)), {"a.x": "b.x", "a.y": "b.x"})
    with pytest.raises(Refused, match=r"a\.x cannot be replicated back"):
        reverse_selection(Selection(("a.*",)), {"a.x": "towpath.x"})


def test_whole_documents_keep_their_collections():
    there, to = Selection(("a.*",)), {"a.x": "b.x", "a.y": "b.y"}
    assert renamed_patterns(("a.x", "a.z*"), there, to) == ("a.z*", "b.x")
    assert renamed_patterns(("a.*",), there, to) == ("a.*", "b.x", "b.y")
    assert renamed_patterns((), there, to) == ()


@pytest.fixture
def file(tmp_path):
    def written(text, name="shop.toml"):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    return written


def reversed_by_hand(pipeline, **changed):
    """What the file of the reverse pipeline has to say."""
    collections = {"exclude": (*pipeline.collections.exclude, "towpath.*")}
    return pipeline.changed(
        name=f"{pipeline.name}-back",
        source=pipeline.destination,
        destination=pipeline.source,
        collections=collections | changed.pop("collections", {}),
        capture=Capture().changed(
            copy_method="none", splice_cache=pipeline.capture.splice_cache, **changed.pop("capture", {})
        ),
        log=Log().changed(retention=pipeline.log.retention),
        run=Run(verify=pipeline.run.verify, repair=pipeline.run.repair),
        **changed,
    )


MORE = """
[collections.rename]
"shop.orders" = "archive.or, d\\"ers"
[capture]
copy_tasks = 3
copy_threads = 9
read_preference = "nearest"
splice_cache = "1MiB"
whole_documents = ["shop.orders", "shop.größe*"]
[write]
concern = "majority+journal"
tasks = 3
fold = false
batch_records = 99
[log]
retention = "30d"
compact = true
[run]
compact = true
verify = true
repair = false
"""


def test_a_minimal_file(file):
    path = file(MINIMAL)
    assert read(write_reverse_file(path)) == reversed_by_hand(read(path))


def test_a_file_that_says_everything(file):
    path = file(MINIMAL.replace("[kafka]", "[kafka]\npartitions = 7\nreplication_factor = 3") + MORE)
    expected = reversed_by_hand(
        read(path),
        collections={"include": ("shop.*", 'archive.or, d"ers'), "rename": {'archive.or, d"ers': "shop.orders"}},
        capture={"whole_documents": ("shop.größe*", 'archive.or, d"ers')},
    )
    assert read(write_reverse_file(path)) == expected.changed(collections={"exclude": ("shop.orders", "towpath.*")})


def test_addresses_by_file_and_by_environment_and_logins_stay_valid(file, tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_URI", "mongodb://u:p@h1/?replicaSet=a")
    pem = file("-", "ca.pem")
    file(f"mongodb://v:q@h2/?tlsCAFile={pem}&tlsCertificateKeyFile={pem}&tlsCertificateKeyFilePassword=x", "d.uri")
    file("ada:secret", "connect.user")
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    scram = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={login}\n"
    file(scram, "client.properties")
    text = MINIMAL.replace('uri = "mongodb://127.0.0.1:1/?replicaSet=a"', 'uri_env = "SHOP_URI"')
    text = text.replace('uri = "mongodb://127.0.0.1:2/"', 'uri_file = "d.uri"')
    text = text.replace('"127.0.0.1:9092"\n', '"127.0.0.1:9092"\nclient = "client.properties"\n')
    path = file(text + 'user_file = "connect.user"\nsecrets = "secrets"\nbootstrap = "kafka:9092"\n')
    found = reverse_file_text(path)
    assert "secret\n" not in found and "u:p" not in found and "v:q" not in found
    back = read(write_reverse_file(path))
    assert back == reversed_by_hand(read(path))
    assert back.secrets_file == tmp_path / "secrets" / "shop-back.properties"


def test_the_file_is_for_its_owner_and_is_not_written_over(file):
    path = file(MINIMAL)
    old = os.umask(0)
    try:
        back = write_reverse_file(path)
    finally:
        os.umask(old)
    assert back.name == "shop-back.toml" and stat.S_IMODE(back.stat().st_mode) == 0o600
    assert write_reverse_file(path) == back
    assert read(back) == parse(checked_reverse_file(path), back)
    back.write_text(back.read_text() + "# mine\n")
    with pytest.raises(TowpathError, match="move it away"):
        write_reverse_file(path)
    assert back.read_text().endswith("# mine\n")


def test_names_that_get_too_long_and_the_plain_mode_are_refused(file):
    longest = "s" * 59
    assert read(write_reverse_file(file(MINIMAL.replace('"shop"', f'"{longest}"')))).name == f"{longest}-back"
    with pytest.raises(Refused, match="needs a name of at most 59"):
        reverse_file_text(file(MINIMAL.replace('"shop"', f'"{longest}s"')))
    with pytest.raises(Refused, match='mode = "plain"'):
        reverse_file_text(file(PLAIN))


def test_topics_of_the_two_ways_are_not_each_other_s(file):
    path = file(MINIMAL)
    there, back = read(path), read(write_reverse_file(path))
    for one, other in ((there, back), (back, there)):
        pattern = one.selection.topic_regex(one.name)
        assert re.fullmatch(pattern, f"{one.name}.shop.orders")
        assert not re.fullmatch(pattern, f"{other.name}.shop.orders")
    assert not names(there) & names(back)


def names(pipeline):
    """What is called after a pipeline, at Connect and at Kafka."""
    groups = pipeline.sink_group, pipeline.compaction_group
    topics = pipeline.request_topic, pipeline.dead_letter_topic, *pipeline.heartbeat_topics
    return {*pipeline.connectors, *groups, *topics}


def test_what_is_not_written_yet_can_be_used_also_with_passwords(file):
    path = file(MINIMAL.replace("mongodb://", "mongodb://u:p@"))
    back = parse(checked_reverse_file(path), path.with_name("shop-back.toml"))
    assert back == reversed_by_hand(read(path)) and not path.with_name("shop-back.toml").exists()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda text: text, ""),
        (lambda text: text.replace("include = [", 'include = ["more.*", '), "exists and is not the reverse pipeline"),
        (lambda text: text + '\n[[collections.rules]]\ncollections = "shop.*"\ndrop = ["secret"]\n', "has rules"),
    ],
)
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_reverse_pipeline_of_an_earlier_file_is_refused(tmp_path, edit, words, is_moved):
    """Also if its file was moved away since it was read."""
    file = tmp_path / "shop.toml"
    file.write_text(PIPELINE)
    back = write_reverse_file(file)
    reverse = session_of(read(back), file=back)
    file.write_text(edit(PIPELINE))
    if is_moved:
        back.unlink()
    if not words:
        refuse_outdated(reverse, file)
        return
    with pytest.raises(TowpathError, match="has changed" if is_moved and "rules" not in words else words):
        refuse_outdated(reverse, file)


RENAMING = PIPELINE + '\n[collections.rename]\n"shop.a" = "old.a"\n'


@pytest.mark.parametrize(
    ("text", "edited", "collections", "words"),
    [
        (PIPELINE, "shop", {}, ""),
        (RENAMING, "shop", {}, ""),
        (PIPELINE, "shop", {"include": ("shop.*", "more.c")}, "include lacks more.c"),
        (PIPELINE, "shop", {"exclude": ("shop.b",)}, "exclude lacks shop.b"),
        (PIPELINE, "shop-back", {"exclude": ("shop.b", "towpath.*")}, "exclude has shop.b"),
        (PIPELINE, "shop-back", {"exclude": ()}, ""),  # towpath.* is never included
        (PIPELINE, "shop-back", {"include": ("shop.z", "shop.a")}, "has shop.a, shop.z; include lacks shop.*"),
        (RENAMING, "shop-back", {"rename": {"old.a": "shop.b"}}, "rename has old.a to shop.b; rename lacks old.a to"),
        (RENAMING, "shop", {"rename": {}}, "include has old.a; exclude has shop.a; rename has old.a to shop.a"),
    ],
)
def test_no_fail_back_begins_unless_both_files_name_the_same_collections(file, text, edited, collections, words):
    """What only one of them names was captured by one of the two only, or is not skipped."""
    path = file(text)
    back = write_reverse_file(path)
    back.write_text(back.read_text() + "\n[run]\nverify = true\n", encoding="utf-8")
    sides = {one.stem: session_of(read(one), file=one) for one in (path, back)}
    changed = sides[edited].pipeline.changed(collections=collections)
    sides[edited] = session_of(changed, file=sides[edited].file)
    if not words:
        refuse_other_namespaces(sides["shop"], sides["shop-back"])
        return
    with pytest.raises(Refused, match=r"cannot fail back: .*shop-back.toml does not name the collections") as raised:
        refuse_other_namespaces(sides["shop"], sides["shop-back"])
    assert words in str(raised.value)
