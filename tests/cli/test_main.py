"""The command as a whole: help, speed, errors, exit codes, interrupts, pipes."""

from __future__ import annotations

import errno
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from torshc.base import errors
from torshc.cli import cli
from torshc.cli.faults import BROKEN_PIPE, INTERRUPTED, guarded
from torshc.workbench.feeds import parse_dims

from .conftest import Torshc

VERBS = (
    "compile",
    "run",
    "explain",
    "verify",
    "bisect",
    "check",
    "bench",
    "tune",
    "eject",
    "weights",
    "targets",
    "cache",
    "completion",
    "man",
)
ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "torshc", *arguments]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def test_help_lists_every_verb_in_order(torshc: Torshc) -> None:
    text = torshc("--help").output
    places = [text.index(f"\n  {verb} ") for verb in VERBS]
    assert places == sorted(places) and set(cli.commands) == set(VERBS)


def test_the_summaries_of_verbs_are_whole(torshc: Torshc) -> None:
    lines = torshc("--help").output.partition("Commands:")[2].splitlines()
    assert len(lines) > len(VERBS) and not [line for line in lines if line and not line.endswith(".")]
    assert not [line for line in lines if line.endswith("...")]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_in_80_columns(torshc: Torshc, verb: str) -> None:
    text = torshc(verb, "--help").output
    assert "None" not in text
    assert len(text.splitlines()) > 5 and max(map(len, text.splitlines())) <= 80


def test_version(torshc: Torshc) -> None:
    from torshc import __version__

    assert torshc("--version").output.strip().endswith(__version__)


@pytest.mark.parametrize(
    "error",
    [
        errors.ModelError("damaged", "download it again"),
        errors.UnsupportedError(["node 1", "node 2"]),
        errors.ConfigError("m"),
        errors.ToolchainError("m"),
        errors.RunError("m"),
        errors.BundleError("m"),
        errors.OutputError("m"),
        errors.ResourceError("m"),
        errors.InternalError("m"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_become_their_exit_codes(error: errors.TorshcError, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    assert guarded(fail) == error.exit_code
    shown = capsys.readouterr().err
    assert shown.startswith("torshc: error: ") and error.message in shown
    assert ("remedy: " + error.remedy in shown) == bool(error.remedy)


def test_an_error_tells_its_notes_and_nothing_for_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        error = errors.ModelError("bad \x1b]0;title\x07 name")
        error.add_note("in pass x")
        raise error

    guarded(fail)
    shown = capsys.readouterr().err
    assert "in pass x" in shown and "\x1b" not in shown and "\x07" not in shown


def test_an_unexpected_error_asks_for_a_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise KeyError("oops")

    assert guarded(fail) == 70
    plain = capsys.readouterr().err
    assert "KeyError" in plain and "report" in plain and "TORSHC_DEBUG=1" in plain and "Traceback" not in plain
    monkeypatch.setenv("TORSHC_DEBUG", "1")
    assert guarded(fail) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_ends_quietly(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    assert guarded(fail) == INTERRUPTED == 128 + signal.SIGINT
    assert capsys.readouterr().err == "torshc: interrupted\n"


def test_no_memory_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise MemoryError

    assert guarded(fail) == errors.ResourceError.exit_code == 9
    assert "torshc cannot go on: Cannot allocate memory\n  remedy: use smaller shapes" in capsys.readouterr().err


def test_other_os_errors_are_not_taken_for_a_broken_pipe() -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "input/output error")

    assert guarded(fail) == 9


def test_the_file_is_named_that_the_system_refused(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise OSError(errno.EROFS, "read-only", "/mnt/probe.c")

    assert guarded(fail) == 9
    said = capsys.readouterr().err
    assert "cannot go on at /mnt/probe.c: Read-only file system\n  remedy: write elsewhere" in said


@pytest.mark.parametrize("arguments", [["--help"], ["cache", "info", "--json"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_stdout_is_no_fault_of_torshc(arguments: list[str], unbuffered: str) -> None:
    env = environment() | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command(*arguments), stdout=full, stderr=subprocess.PIPE, env=env, text=True)
        both = subprocess.run(command(*arguments), stdout=full, stderr=full, env=env)
    words = "cannot write to stdout: No space left on device\n  remedy: free some space\n"
    assert done.returncode == both.returncode == 9 and done.stderr == f"torshc: error: {words}"


@pytest.mark.parametrize(
    ("limit", "amount", "code", "words"),
    [
        ("RLIMIT_NOFILE", "5", 9, "Too many open files\n  remedy: raise the limit of open files"),
        (
            "RLIMIT_AS",
            "int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + (48 << 20)",
            5,
            "failed to map segment from shared object\n  remedy: if memory is limited",
        ),
    ],
)
def test_a_limit_of_the_system_is_named(limit: str, amount: str, code: int, words: str, tmp_path: Path) -> None:
    """Reached once all of torshc is imported, so that it does not depend on what imports need."""
    text = f"""
import resource, sys
import torshc.pipeline.compiler, torshc.cli.compile
resource.setrlimit(resource.{limit}, ({amount}, resource.getrlimit(resource.{limit})[1]))
from torshc.cli import main
sys.argv = ["torshc", "compile", {str(ROOT / "samples" / "mlp.json")!r}, "-o", {str(tmp_path / "out.tsc")!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", text], env=environment(), capture_output=True, text=True)
    assert done.returncode == code and words in done.stderr and not any(tmp_path.iterdir()), done.stderr


def test_a_dimension_given_twice() -> None:
    with pytest.raises(errors.ConfigError, match="'batch' is given twice"):
        parse_dims(["batch=2,batch=3"])


@pytest.mark.parametrize("option", ["--dims", "--shapes"])
def test_numbers_of_thousands_of_digits(option: str, chain: Path) -> None:
    given = f"n={'9' * 5000}" if option == "--dims" else f"x:{'9' * 5000}"
    assert CliRunner().invoke(cli, ["explain", str(chain), option, given]).exit_code == errors.ConfigError.exit_code


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_changes_no_exit_code(closed: int, chain: Path) -> None:
    def run(*arguments: str) -> int:
        close = ["sh", "-c", f'exec "$@" {closed}{"<" if closed == 0 else ">"}&-', "sh"]
        return subprocess.run([*close, *command(*arguments)], env=environment(), capture_output=True).returncode

    assert run("check", str(chain)) == 0
    if closed == 2:  # where the message goes
        assert run("check", "nothing.onnx") == errors.ModelError.exit_code


def test_the_folder_that_is_no_longer_there(chain: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    leave = "import os, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
    started = [sys.executable, "-c", leave, str(gone), *command("explain", str(chain))]
    done = subprocess.run(started, capture_output=True, text=True, env=environment())
    assert done.returncode == errors.ResourceError.exit_code and "is no longer there" in done.stderr, done.stderr


def test_file_names_that_are_no_text(chain: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(tmp_path / "odd") + b"\xff.onnx")
    Path(odd).write_bytes(chain.read_bytes())
    for form in ("text", "json", "html", "dot"):
        out = ["--format", form, "-o", str(tmp_path / "out")]
        assert CliRunner().invoke(cli, ["explain", odd, *out]).exit_code == 0
        assert (tmp_path / "out").read_text(encoding="utf-8")


def test_a_broken_pipe_is_quiet(chain: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command("explain", "-q", str(chain)), stdout=writer, stderr=subprocess.PIPE, env=environment()
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, b"")


def test_an_unknown_verb_is_a_usage_error(torshc: Torshc) -> None:
    assert "No such command" in torshc("compil", code=2).output


def terminal_output(arguments: list[str], code: int = 0, **more: str) -> bytes:
    """All that a command writes when stdout and stderr are a terminal; `code` is the exit code that is expected."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command(*arguments), stdout=slave, stderr=slave, env=environment(**more))
    os.close(slave)
    text = b""
    try:
        while part := os.read(master, 65536):
            text += part
    except OSError as error:  # a terminal whose other side is closed ends so on Linux
        assert error.errno == errno.EIO
    os.close(master)
    assert process.wait() == code
    return text


def test_a_page_is_not_printed_onto_a_terminal(chain: Path) -> None:
    told = terminal_output(["explain", str(chain), "--against", str(chain)], code=2)
    assert b"--open" in told and b"<html" not in told


def test_colour_and_a_rewritten_line_on_terminals_only(chain: Path) -> None:
    arguments = ["compile", str(chain), "-o", "out.tsc"]
    colourful = terminal_output(arguments, TERM="xterm", NO_COLOR="")
    assert b"\x1b[1m" in colourful and b"\r\x1b[2K" in colourful
    assert b"\x1b[1m" not in terminal_output(arguments, TERM="xterm", NO_COLOR="1")
    assert b"\x1b" not in terminal_output(arguments, TERM="dumb")
    piped = subprocess.run(command(*arguments), capture_output=True, env=environment(), check=True)
    assert b"\x1b" not in piped.stdout + piped.stderr and piped.stdout.count(b"\n") == 1
