"""Secrets of a command line and an environment do not reach run.json; all else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus import redact

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
        ["train.py", f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----"],
    ],
    ids=lambda words: " ".join(words)[:60].replace("\n", " "),
)
def test_a_secret_is_hidden(words: list[str]) -> None:
    shown = redact.command(words)
    assert len(shown) == len(words)
    kept = " ".join(shown)
    assert redact.HIDDEN in kept
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
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_what_is_no_secret_is_kept(words: list[str]) -> None:
    assert redact.command(words) == words


def test_a_hidden_part_leaves_the_rest_readable() -> None:
    assert redact.command(["--db", f"postgresql://me:{SECRET}@db/runs"]) == [
        "--db",
        "postgresql://me:***@db/runs",
    ]
    assert redact.command([f"token={SECRET}", "--epochs=3"]) == ["token=***", "--epochs=3"]


def test_an_environment_is_redacted_by_name_and_by_shape() -> None:
    shown = redact.environment(
        {"LOTUS_TOKEN": SECRET, "LOTUS_OPS": f"a.b:c\nhf_{SECRET}", "OMP_NUM_THREADS": "2"}
    )
    assert shown == {
        "LOTUS_TOKEN": "***",
        "LOTUS_OPS": "a.b:c\n***",
        "OMP_NUM_THREADS": "2",
    }


@given(st.lists(st.text(max_size=80), max_size=6))
def test_any_command_line_is_taken(words: list[str]) -> None:
    assert len(redact.command(words)) == len(words)


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=40))
def test_whatever_follows_a_secret_flag_is_hidden(secret: str) -> None:
    assert redact.command(["--password", secret]) == ["--password", "***"]
    assert redact.command([f"--password={secret}"]) == ["--password=***"]


def test_a_long_word_is_cut_and_still_searched() -> None:
    (shown,) = redact.command([f"password={SECRET};" + "a=" * 100_000])
    assert shown == "password=***"
    (shown,) = redact.command([f"x = 1; password = '{SECRET}';" + "a=" * 100_000])
    assert SECRET not in shown
    assert len(shown) < 11_000
    assert shown.endswith("characters)")
