"""Sizes of variants as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from torshc.base.budget import OverBudget
from torshc.base.errors import ConfigError
from torshc.base.manifest import sizes_text
from torshc.base.variants import case_files, parse_cases, read_cases


def test_all_combinations_the_last_name_changing_first() -> None:
    found = [sizes_text(case) for case in parse_cases(" batch=1,8  seq=64..128,7..7 ")]
    assert found == ["batch=1 seq=64..128", "batch=1 seq=7", "batch=8 seq=64..128", "batch=8 seq=7"]
    assert [sizes_text(case) for case in parse_cases("a=b=2")] == ["a=b=2"]  # a name may be any text
    assert [sizes_text(case) for case in parse_cases("zero=-128,0")] == ["zero=-128", "zero=0"]  # perhaps an input's


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "without a size"),
        ("batch", "says no size"),
        ("=3", "says no size"),
        ("n=", "'' is no size of 'n'"),
        ("n=1,,2", "'' is no size"),
        ("n=0..2", "1 to 2\\^31 - 1"),
        ("n=-1..1", "1 to 2\\^31 - 1"),
        ("n=1.5", "'1.5' is no size"),
        ("n=٣", "is no size"),
        ("n=9..3", "a range goes up"),
        ("n=1..2147483648", "1 to 2\\^31 - 1"),
        ("n=1 n=2", "twice"),
    ],
)
def test_what_says_no_sizes_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_cases(text)


def test_files_and_doubles(tmp_path: Path) -> None:
    file = tmp_path / "sizes.txt"
    file.write_text("# as on Monday\n\nbatch=1 seq=8,9  # and more\nseq=4\n")
    found = read_cases([f"@{file}", "batch=2"])
    assert [sizes_text(case) for case in found] == ["batch=1 seq=8", "batch=1 seq=9", "seq=4", "batch=2"]
    assert case_files(["a=1", f"@{file}"]) == [file]
    with pytest.raises(ConfigError, match="seq=4 twice"):
        read_cases(["seq=4", f"@{file}"])
    with pytest.raises(ConfigError, match="seq=8 batch=1 twice"):
        read_cases([f"@{file}", "seq=8 batch=1"])
    with pytest.raises(ConfigError, match="no such file"):
        read_cases([f"@{tmp_path}"])
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_cases([f"@{file}"])
    file.write_text("#" * 70000)
    with pytest.raises(ConfigError, match="larger than"):
        read_cases([f"@{file}"])


def test_the_number_of_variants_has_a_budget() -> None:
    many = ",".join(map(str, range(1, 9)))
    with pytest.raises(OverBudget, match="asks for 64 variants, more than the budget 'variants' of 32"):
        parse_cases(f"a={many} b={many}")
    with pytest.raises(OverBudget, match="more than the budget 'variants' of 32"):
        read_cases([f"a={k}" for k in range(1, 40)])
