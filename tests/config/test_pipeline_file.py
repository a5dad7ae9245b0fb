"""The pipeline file: what it says becomes values, and what it gets wrong becomes words."""

import javaproperties
import pytest

from towpath.config.loading import read
from towpath.config.mongo_uri import without_credentials
from towpath.errors import BadPipelineFile
from towpath.store.credentials import destination_uri, properties, write

MINIMAL = """
name = "shop"
[source]
uri = "mongodb://127.0.0.1:1/?replicaSet=a"
[destination]
uri = "mongodb://127.0.0.1:2/"
[collections]
include = ["shop.*"]
[kafka]
bootstrap = "127.0.0.1:9092"
[connect]
url = "http://127.0.0.1:8083"
"""
PLAIN = 'mode = "plain"\n' + MINIMAL


@pytest.fixture
def file(tmp_path):
    def written(text):
        path = tmp_path / "shop.toml"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return written


def test_defaults(file):
    pipeline = read(file(MINIMAL))
    assert (pipeline.kafka.partitions, pipeline.write.tasks, pipeline.write.concern) == (4, 2, "majority")
    assert (pipeline.log.retention, pipeline.kafka.replication_factor) == (-1, -1)
    assert pipeline.connectors == ("shop-source", "shop-sink")
    assert (pipeline.write.fold, pipeline.write.batch_records, pipeline.write.batch_bytes) == (True, 50_000, 16 << 20)
    assert (pipeline.mode, pipeline.write.wtimeout) == ("exactly-once", 60_000)
    assert (pipeline.copy_method, pipeline.capture.copy_threads) == ("towpath", 4)
    assert pipeline.worker_bootstrap == pipeline.kafka.bootstrap
    assert (pipeline.splice_cache, read(file(PLAIN)).splice_cache) == (64 << 20, 0)
    assert read(file(PLAIN)).copy_method == "debezium"
    assert destination_uri(pipeline) == pipeline.destination.uri, "the write concern is a setting of the sink"


@pytest.mark.parametrize(
    ("mode", "copy", "own_source"),
    [
        ("exactly-once", "towpath", True),
        ("exactly-once", "none", True),
        ("plain", "towpath", True),
        ("plain", "debezium", False),
        ("plain", "none", False),
    ],
)
def test_mode_and_copy_decide_who_captures(file, mode, copy, own_source):
    pipeline = read(file(f'mode = "{mode}"{MINIMAL}[capture]\ncopy = "{copy}"\n'))
    assert (pipeline.mode, pipeline.copy_method) == (mode, copy)
    assert pipeline.has_own_source is own_source


@pytest.mark.parametrize(
    ("value", "expected"), [("0", 0), ('"0"', 0), ("1000", 1000), ('"1.5GiB"', 3 << 29), ('"64 MB"', 64_000_000)]
)
def test_a_size_is_a_number_or_a_text(file, value, expected):
    assert read(file(f"{MINIMAL}[capture]\nsplice_cache = {value}\n")).splice_cache == expected


def test_plain_mode_has_no_splices(file):
    assert read(file(f"{PLAIN}[capture]\nsplice_cache = 0\n")).splice_cache == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[kafka]", "[kafka]\npartition = 3"), r"kafka\.partition: unknown key"),
        (("[connect]", "[conect]"), r"connect: is missing"),
        (('name = "shop"', 'name = "a.b"'), r"name: 'a\.b' does not fit"),
        (('name = "shop"', 'name = "shop-replay-eu"'), r"could also be the name of a replay"),
        (('include = ["shop.*"]', 'include = ["shop"]'), r"'shop' is not a namespace pattern"),
        (('include = ["shop.*"]', "include = []"), r"collections\.include"),
        (('include = ["shop.*"]', 'include = ["towpath.x"]'), r"'towpath\.x' cannot be replicated: .* positions"),
        (('include = ["shop.*"]', 'include = ["*.*", "admin.*"]'), r"'admin\.\*' cannot be replicated: .* the server"),
        (("[kafka]", '[collections.rename]\n"shop.x" = "towpath.x"\n[kafka]'), r"'shop\.x' cannot become 'towpath\.x'"),
        (("[kafka]", "[kafka]\npartitions = 0"), r"kafka\.partitions"),
        (("[kafka]", '[kafka]\npartitions = "4"'), r"kafka\.partitions"),
        (("[kafka]", '[log]\nretention = "5 days"\n[kafka]'), r"'5 days' is not a duration"),
        (("[kafka]", '[write]\nconcern = "all of them"\n[kafka]'), r"write\.concern"),
        (("[kafka]", '[collections.rename]\n"shop.*" = "x.y"\n[kafka]'), r"is not a namespace"),
        (("http://127", "127"), r"is not the URL of a Connect worker"),
        ((':8083"', ':80830"'), r"is not a URL: Port out of range"),
        (("mongodb://127.0.0.1:2/", "http://x"), r"must begin with mongodb://"),
        (('uri = "mongodb://127.0.0.1:2/"', 'uri = "mongodb://a"\nuri_env = "B"'), r"exactly one of"),
        (('uri = "mongodb://127.0.0.1:2/"', 'uri_env = "TOWPATH_NOT_SET"'), r"TOWPATH_NOT_SET is not set"),
        (('uri = "mongodb://127.0.0.1:2/"', 'uri_file = "nowhere"'), r"cannot read .*nowhere"),
        (("[source]", "[source"), r"is not TOML"),
        (('name = "shop"', 'name = "shop"\nmode = "exact"'), r"mode: input should be 'exactly-once' or 'plain'"),
        (("[kafka]", '[capture]\ncopy = "debezium"\n[kafka]'), r"set mode = .plain."),
        (("[kafka]", '[capture]\ncopy = "some"\n[kafka]'), r"capture\.copy: input should be"),
        (("[kafka]", '[capture]\nread_preference = "any"\n[kafka]'), r"capture\.read_preference"),
        (("[kafka]", "[capture]\nbytes_per_second = -1\n[kafka]"), r"capture\.bytes_per_second"),
        (("[kafka]", "[capture]\ncopy_tasks = 0\n[kafka]"), r"capture\.copy_tasks: .*greater than or equal to 1$"),
        (("[kafka]", '[capture]\nsplice_cache = "64MiC"\n[kafka]'), r"splice_cache: '64MiC' is not a size; write"),
        (("[kafka]", "[capture]\nsplice_cache = -1\n[kafka]"), r"capture\.splice_cache: -1 is not a size; write"),
        (("[kafka]", '[capture]\nsplice_cache = "9999999PiB"\n[kafka]'), r"capture\.splice_cache: .*less than"),
        (
            ('name = "shop"', 'name = "shop"\nmode = "plain"\ncapture.splice_cache = "1MiB"'),
            r"splice_cache does not go with mode = .plain.",
        ),
        (("[kafka]", '[write]\nwtimeout = "forever"\n[kafka]'), r"'forever' is not a timeout"),
        (("[kafka]", "[write]\nbatch_records = 0\n[kafka]"), r"write\.batch_records: .*greater than or equal to 1$"),
        (("[kafka]", "[write]\nbatch_records = 2000000\n[kafka]"), r"batch_records: .*less than or equal to 1000000"),
        (("[kafka]", "[write]\nbatch_bytes = 0\n[kafka]"), r"write\.batch_bytes: .*greater than or equal to 1$"),
        (("[kafka]", "[write]\nbatch_bytes = 268435457\n[kafka]"), r"batch_bytes: .*less than or equal to 268435456"),
        (("[kafka]", '[write]\nfold = "yes"\n[kafka]'), r"write\.fold: input should be a valid boolean"),
    ],
)
def test_every_fault_is_said_in_words(file, change, words):
    assert change[0] in MINIMAL
    with pytest.raises(BadPipelineFile, match=words):
        read(file(MINIMAL.replace(*change)))


def test_a_missing_file_names_the_way_to_one(tmp_path):
    with pytest.raises(BadPipelineFile, match="towpath init"):
        read(tmp_path / "none.toml")


def test_a_file_with_a_password_must_not_be_open_to_others(file):
    path = file(MINIMAL.replace("mongodb://127.0.0.1:2/", "mongodb://u:secret@127.0.0.1:2/"))
    read(path)
    path.chmod(0o644)
    with pytest.raises(BadPipelineFile, match="chmod 600") as caught:
        read(path)
    assert "secret" not in str(caught.value)


def test_a_uri_from_a_file_is_stripped_and_the_file_must_be_private(file, tmp_path):
    (tmp_path / "d.uri").write_text("mongodb://u:p@h/\n")
    (tmp_path / "d.uri").chmod(0o600)
    path = file(MINIMAL.replace('uri = "mongodb://127.0.0.1:2/"', 'uri_file = "d.uri"'))
    assert read(path).destination.uri == "mongodb://u:p@h/"
    (tmp_path / "d.uri").chmod(0o640)
    with pytest.raises(BadPipelineFile, match=r"chmod 600 .*d\.uri"):
        read(path)


@pytest.mark.parametrize(
    ("concern", "uri", "expected"),
    [
        ("1", "mongodb://h", "mongodb://h/?w=1"),
        ("majority+journal", "mongodb://h/", "mongodb://h/?w=majority&journal=true"),
        ("2", "mongodb://h/db?replicaSet=a", "mongodb://h/db?replicaSet=a&w=2"),
        ("2", "mongodb://h/?W=3", "mongodb://h/?W=3"),
    ],
)
def test_the_write_concern_goes_into_the_destination_s_uri_in_plain_mode(file, concern, uri, expected):
    text = PLAIN.replace("mongodb://127.0.0.1:2/", uri) + f'[write]\nconcern = "{concern}"\n'
    assert destination_uri(read(file(text))) == expected


def test_the_secrets_file_is_private_and_names_the_replica_sets(file, tmp_path):
    pipeline = read(file(PLAIN))
    target = tmp_path / "new" / "shop.properties"
    write(target, properties(pipeline, "a", "b"))
    assert target.stat().st_mode & 0o777 == 0o600
    assert javaproperties.loads(target.read_text()) == {
        "source.uri": "mongodb://127.0.0.1:1/?replicaSet=a",
        "destination.uri": "mongodb://127.0.0.1:2/?w=majority&replicaSet=b",
    }


@pytest.mark.parametrize("user", ["", "u:p%40w@", "u:p@w@", "u:p/w@", "u:p?w@", "u:p?w=x@", "u:p@w?x@"])
@pytest.mark.parametrize(
    "options", ["", "?", "?authSource=x", "?w=1&tlsCertificateKeyFilePassword=se@cret", "?a=b?c=@d"]
)
def test_a_uri_is_shown_without_credentials(user, options):
    assert without_credentials(f"mongodb://{user}h1,h2:2/db{options}") == "mongodb://h1,h2:2/db"
    assert without_credentials(f"mongodb://{user}[::1]:2/{options}") == "mongodb://[::1]:2"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("", ""), "shop"),
        (('"shop.*"', '"*.audit", "shop.*"'), "shop-pipe"),
        (('"shop.*"]', '"shop.orders"]\n[collections.rename]\n"shop.orders" = "archive.orders"'), "archive"),
    ],
)
def test_mongo_kafka_is_shown_a_database_that_is_written(file, change, expected):
    text = MINIMAL.replace('name = "shop"', 'name = "shop-pipe"').replace(*change)
    assert read(file(text)).database == expected


def test_no_login_is_shown_and_no_key_of_a_file_is_a_login(file):
    text = MINIMAL.replace("mongodb://127.0.0.1:2/", "mongodb://u:pass@127.0.0.1:2/")
    assert "pass" not in repr(read(file(text)))
    with pytest.raises(BadPipelineFile, match=r"connect\.login: unknown key"):
        read(file(f'{text}login = "u:pass"\n'))


def test_a_changed_pipeline_keeps_the_rest_and_selects_anew(file):
    pipeline = read(file(MINIMAL))
    assert pipeline.selection.matches("shop.a")
    other = pipeline.changed(name="other", collections={"include": ("crm.*",)}, write={"tasks": 7})
    assert (other.name, other.write.tasks, other.write.concern) == ("other", 7, "majority")
    assert (other.selection.matches("shop.a"), other.selection.matches("crm.a")) == (False, True)
    assert pipeline.changed() == pipeline != other


def test_every_fault_is_listed_at_once(file):
    text = MINIMAL.replace("http://127", "127").replace("[kafka]", '[log]\nretention = 5\n[run]\nlisten = "x"\n[kafka]')
    with pytest.raises(BadPipelineFile) as caught:
        read(file(text))
    for place in ("connect.url: ", "log.retention: 5 is not a duration", "run.listen: 'x' is not an address"):
        assert f"  {place}" in str(caught.value)
