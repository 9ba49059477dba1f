"""`lotus balance`: options that are for another strategy are not passed over in silence."""

from pathlib import Path

import pytest

from lotus import cli


@pytest.mark.parametrize(
    ("words", "strategy"),
    [
        (["--link", "0-1=50us"], "bno"),
        (["--base-batch", "8"], "bno"),
        (["--seed", "3"], "random"),
    ],
)
def test_an_option_of_another_strategy_is_refused(
    words: list[str], strategy: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["balance", str(tmp_path / "absent"), *words]) == 2
    error = capfd.readouterr().err
    assert error == (
        f"lotus: {words[0]} is for {strategy}, this is lotus; leave it out, or add "
        f"--strategy {strategy}\n"
    )
    # With it only the run is missing.
    assert cli.main(["balance", str(tmp_path / "absent"), "--strategy", strategy, *words]) == 2
    assert "absent" in capfd.readouterr().err
