"""Secrets of a command line and an environment do not reach run.json; all else does."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus import cli
from lotus.common.text import redaction
from lotus.export.formats import FORMATS
from lotus.inside.common import urls
from lotus.inside.trace.config import Config
from lotus.inside.trace.fetch_state import Fetch
from lotus.inside.trace.recorder import Recorder
from lotus.reading.run import load
from tests.logs import MS, START_NS, RunBuilder, Sample

SECRET = "Zq7pXw2mKd9rTb4n"
LONG = "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c"


@pytest.mark.parametrize(
    "words",
    [
        ["train.py", "--token", SECRET],
        ["train.py", "-token", SECRET],
        ["train.py", f"--token={SECRET}"],
        ["train.py", f"--password={SECRET} with; spaces"],
        ["train.py", "--hf-token", SECRET, "--epochs", "3"],
        ["train.py", f"api_key={SECRET}"],
        ["train.py", f"+logger.wandb.api_key={SECRET}"],
        ["train.py", f"--wandbApiKey={SECRET}"],
        ["train.py", "--aws-secret-access-key", SECRET],
        ["env", f"AWS_ACCESS_KEY_ID={SECRET}", "python"],
        ["env", f"WANDB_API_KEY={LONG}", "python"],
        ["train.py", "--storage", f"https://user:{SECRET}@example.org/bucket"],
        ["train.py", f"postgresql://me:{SECRET}/x@y@db/runs"],
        ["train.py", f"https://{SECRET}{SECRET}@example.org/x.git"],
        ["train.py", f"https://example.org/data?X-Amz-Signature={SECRET}&part=1"],
        ["train.py", f"https://example.org/data?part=1&sig={SECRET}"],
        ["bash", "-c", f"export TOKEN={SECRET}; python train.py"],
        ["bash", "-c", f"python train.py --password {SECRET} --epochs 3"],
        ["python", "-c", f"login(token='{SECRET}')"],
        ["python", "-c", f'login({{"password": "{SECRET}"}})'],
        ["curl", "-H", f"Authorization: Bearer {SECRET}"],
        ["train.py", f"hf_{SECRET}{SECRET}"],
        ["train.py", f"--name=hf_{SECRET}"],
        ["train.py", "--login", f"ghp_{SECRET}{SECRET}"],
        ["train.py", f"github_pat_{SECRET}_{SECRET}"],
        ["train.py", "AKIAZq7pXw2mKd9rTb4n".upper()],
        ["train.py", f"sk-proj-{SECRET}-{SECRET}"],
        ["train.py", f"eyJhbGciOiJIUzI1.{SECRET}.{SECRET}"],
        ["train.py", f"--run-key-hash={LONG}"],
        ["mysql", "-u", "me", "-p", SECRET],
        ["mysql", "-u", "me", f"-p{SECRET}"],
        ["sshpass", f"-p{SECRET}", "ssh", "host"],
        ["train.py", "-p", SECRET],
        ["train.py", "-p", "9" + SECRET],
        ["train.py", "--pw", SECRET],
        ["train.py", f"--pw={SECRET}"],
        ["train.py", "--db-pw", SECRET],
        ["train.py", "--login", f"user:{SECRET}"],
        ["train.py", f"--login=user:{SECRET}"],
        ["curl", "-u", f"user:{SECRET}", "https://example.org"],
        ["curl", "--user", f"user:{SECRET}@x/y"],
        ["curl", "-H", "Authorization:", "Bearer", SECRET],
        ["curl", "-H", f"authorization: bearer {SECRET}"],
        ["curl", "-H", f"Authorization: ApiKey {SECRET}"],
        ["curl", "-H", f"Authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature={SECRET}"],
        ["curl", "-H", f"Cookie: a=b; session={SECRET}"],
        ["curl", "-H", f"X-Api-Key: {SECRET}"],
        ["curl", "Bearer", SECRET],
        ["train.py", "--auth-token", "Bearer", SECRET],
        ["python", "-c", f'get(url, headers={{"Authorization": "Bearer {SECRET}"}})'],
        ["bash", "-c", f"curl -u me:{SECRET} https://example.org/"],
        ["bash", "-c", f"mysql -p {SECRET} -e x"],
        ["rsync", "-a", f"user:{SECRET}@example.org:/data", "."],
        ["train.py", f"mongo user:{SECRET}@db.example.org:27017/x"],
        ["env", f"KEY={SECRET}", "python"],
        ["env", f"MY_KEY={SECRET}", "DATA_KEYS=x", "python"],
        ["train.py", f"https://b.s3.amazonaws.com/a.jpg?AWSAccessKeyId=a&Signature={SECRET}"],
        ["train.py", f"https://storage.googleapis.com/a?GoogleAccessId={SECRET}&Expires=1"],
        [
            "train.py",
            f"https://x.blob.core.windows.net/c/a?sv=2&se=2026-01-01&sp={SECRET}&sig=a%2B",
        ],
        ["train.py", f"https://example.org/a?token={SECRET}#x"],
        ["train.py", f"https://example.org/a#access_token={SECRET}"],
        ["train.py", f"https://cdn.example.org/a.tar?hdnea=exp=1~acl=/*~hmac={SECRET}"],
        ["train.py", f"bucket/a.jpg?X-Goog-Signature={SECRET}"],
        ["train.py", f"--url=https://example.org/a?x={LONG}"],
        ["train.py", f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----"],
    ],
    ids=lambda words: " ".join(words)[:60].replace("\n", " "),
)
def test_a_secret_is_hidden(words: list[str]) -> None:
    shown = redaction.command(words)
    assert len(shown) == len(words)
    kept = " ".join(shown)
    assert redaction.HIDDEN in kept
    assert SECRET not in kept
    assert SECRET.upper() not in kept
    assert LONG not in kept


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py", "--epochs", "3", "--lr=0.1"],
        ["train.py", "--tokenizer", "gpt2", "--num-tokens", "1000", "--max_tokens=5"],
        ["train.py", "--monkey", "business", "--sort-key", "length", "keyboard=qwerty"],
        ["train.py", "--author", "me", "--passes", "3"],
        ["python", "-m", "torch.distributed.run", "--master-addr", "10.0.0.1:29500"],
        ["train.py", "--data", "https://example.org/data.tar", "s3://bucket/path/file"],
        ["train.py", "--repo", "ssh://git@example.org/x.git", f"--commit={LONG}"],
        ["train.py", "--model", "hf_models/resnet", "--out", "runs/hf_checkpoints"],
        ["train.py", "--use-auth-token", "--epochs", "3"],
        ["bash", "-c", "python train.py --token $TOKEN --password=${PASSWORD}"],
        ["python", "-c", "print(sorted(x, key=len), 'a:b')"],
        ["serve.py", "-p", "8080"],
        ["docker", "run", "-p", "127.0.0.1:8080:80/tcp", "-u", "1000:1000", "image"],
        ["train.py", "-p", "80", "-p", "./here", "-p", "/data/x", "-p", "--flag"],
        ["srun", "-p", "gpu", "python", "train.py"],
        ["bash", "-c", "mkdir -p out; ssh -p 22 host"],
        ["python", "-m", "pytest", "-p", "no:cacheprovider"],
        ["train.py", "--user", "me", "--login", "me", "-u", "train.py"],
        ["train.py", "https://example.org/a.jpg?id=5&size=large", "a?b=c", "x#y=1"],
        ["train.py", "http://localhost:8080/x", "host:22", "git@example.org:a/b.git", "12:30"],
        ["train.py", "--note", "bearer of news", "key=length", "SORT_KEY", "cookie"],
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_what_is_no_secret_is_kept(words: list[str]) -> None:
    assert redaction.command(words) == words


def test_a_hidden_part_leaves_the_rest_readable() -> None:
    assert redaction.command(["--db", f"postgresql://me:{SECRET}@db/runs"]) == [
        "--db",
        "postgresql://me:***@db/runs",
    ]
    assert redaction.command([f"token={SECRET}", "--epochs=3"]) == ["token=***", "--epochs=3"]


def test_an_environment_is_redacted_by_name_and_by_shape() -> None:
    shown = redaction.environment(
        {"LOTUS_TOKEN": SECRET, "LOTUS_OPS": f"a.b:c\nhf_{SECRET}", "OMP_NUM_THREADS": "2"}
    )
    assert shown == {
        "LOTUS_TOKEN": "***",
        "LOTUS_OPS": "a.b:c\n***",
        "OMP_NUM_THREADS": "2",
    }


@given(st.lists(st.text(max_size=80), max_size=6))
def test_any_command_line_is_taken(words: list[str]) -> None:
    assert len(redaction.command(words)) == len(words)


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=40))
def test_whatever_follows_a_secret_flag_is_hidden(secret: str) -> None:
    assert redaction.command(["--password", secret]) == ["--password", "***"]
    assert redaction.command([f"--password={secret}"]) == ["--password=***"]


def test_a_long_word_is_cut_and_still_searched() -> None:
    (shown,) = redaction.command([f"password={SECRET};" + "a=" * 100_000])
    assert shown == "password=***"
    (shown,) = redaction.command([f"x = 1; password = '{SECRET}';" + "a=" * 100_000])
    assert SECRET not in shown
    assert len(shown) < 11_000
    assert shown.endswith("characters)")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("/data/train/a.jpg", "/data/train/a.jpg"),
        ("https://me:pa@ss/word@example.org/a.jpg", "https://me:***@example.org/a.jpg"),
        ("https://example.org:8080/me@home.jpg", "https://example.org:8080/me@home.jpg"),
        (f"https://{LONG}@example.org/a", "https://***@example.org/a"),
        ("s3://bucket/a.jpg?versionId=3", "s3://bucket/a.jpg?versionId=3"),
        ("s3://bucket/a.jpg?se=1;sig=abc", "s3://bucket/a.jpg?***"),
        ("/what?/is=this#1.jpg", "/what?/is=this#1.jpg"),
    ],
)
def test_the_address_of_a_sample(address: str, shown: str) -> None:
    assert urls.without_secrets(address) == shown
    assert urls.without_secrets(shown) == shown


@given(st.lists(st.text(st.characters(codec="ascii"), max_size=60), max_size=5))
def test_what_is_redacted_stays_so(words: list[str]) -> None:
    once = redaction.command(words)
    twice = redaction.command(once)
    assert redaction.command(twice) == twice


def test_a_cut_word_is_cut_once() -> None:
    once = redaction.text("a b " * 100_000)
    assert redaction.text(once) == once


def test_an_earlier_lotus_s_run_is_redacted_when_it_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a run whose files have secrets as an earlier lotus left them
    signed = f"https://bucket.example.org/a.jpg?X-Amz-Expires=60&X-Amz-Signature={SECRET}"
    builder = RunBuilder(
        tmp_path / "run", command=["python", "train.py", "-p", SECRET, "--pw", SECRET]
    )
    main = builder.process(100)
    main.loader(0, num_workers=0)
    main.iterator(0, 0, START_NS, START_NS + MS, [])
    for batch in range(4):
        at = START_NS + (2 + 20 * batch) * MS
        main.batch(batch, start_ns=at, samples=[Sample(batch, 10 * MS, [("Loader", 9 * MS)])])
        main.wait(0, 0, batch, start_ns=at, end_ns=at + 11 * MS)
    main.event("sample_path", sample=3, path=signed, duration_ns=10 * MS)
    main.event("note", text=f"could not open {signed}")
    builder.report("python", 100, ppid=1, argv=["x", "--pw", SECRET], executable="x", python="3")
    builder.report("fault", 100, error=f"FileNotFoundError: {signed}")
    path = builder.end()
    # WHEN it is shown and written in any form, THEN they are in none
    for words in (["report"], ["report", "--json"], ["top", "--once"]):
        assert cli.main([*words, str(path)]) == 0
        out = capsys.readouterr()
        assert SECRET not in out.out + out.err
    for shape in sorted(FORMATS):
        target = tmp_path / "out" / shape
        target.parent.mkdir(exist_ok=True)
        if cli.main(["export", "--format", shape, "-o", str(target), str(path)]):
            continue
        for file in target.rglob("*") if target.is_dir() else [target]:
            data = file.read_bytes()
            content = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            assert SECRET.encode() not in content, file
    capsys.readouterr()
    assert load(path).paths["path"].tolist() == ["https://bucket.example.org/a.jpg?***"]


def test_a_sample_s_path_is_recorded_without_its_signature(tmp_path: Path) -> None:
    recorder = Recorder(Config({"LOTUS_RUN": str(tmp_path)}), None)
    fetch = Fetch()
    recorder.begin_fetch(fetch, (0, 0, 0))
    recorder.samples.extend((1, 7, 0))
    path = f"https://me:{SECRET}@example.org/%d?sig={SECRET}"
    recorder.end_fetch(fetch, [5], lambda index: path % index, 0, 0)
    recorder.flush_batch(1)
    recorder.finish()
    (log,) = (tmp_path / "events").iterdir()
    assert SECRET.encode() not in log.read_bytes()
    assert b"https://me:***@example.org/5?***" in log.read_bytes()


def test_passwords_behind_many_flags_are_hidden_in_passing() -> None:
    # GIVEN commands that name as many passwords as fit, as words and in a word
    assert redaction.command(["x.py", *["-p", SECRET] * 40_000]) == [
        "x.py", *["-p", redaction.HIDDEN] * 40_000
    ]  # fmt: skip
    shown = redaction.command(["-p s " * 2000] * 40)
    assert shown == ["-p *** " * 2000] * 40
    # AND a program that was named long before is not the one whose flag it is
    far = ["ssh", *["x" * 100] * 200, "-p", SECRET]
    assert redaction.command(far)[-1] == redaction.HIDDEN
    assert redaction.command(["ssh", "x", "-p", "here"])[-1] == "here"
    assert redaction.command(["-pack"]) == ["-pack"]
    assert redaction.command(["mysql", "-pack"]) == ["mysql", "-p***"]
