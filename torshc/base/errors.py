"""The error family: each kind of fault has a class and a stable exit code, and each message names its remedy.

The user's fault and ours are different classes, so that the command line can tell a person what to do next
without ever showing a traceback.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence


class TorshcError(Exception):
    """Base of every error that torshc raises on purpose.

    Args:
        message: what is wrong, naming the file and the node where there is one.
        remedy: what the reader can do about it; may be empty.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message


class ModelError(TorshcError):
    """The model file is damaged or contradicts itself."""

    exit_code = 2


class UnsupportedError(TorshcError):
    """The model is valid but asks for what torshc cannot do; lists all of it at once.

    Args:
        problems: one line each, naming node, operator and cause; at least one.
        warnings: what was passed over in the model until then, a line each.

    Raises:
        InternalError: when there is no problem to list: a refusal without a cause is a fault of torshc.
    """

    exit_code = 3

    def __init__(self, problems: Sequence[str], remedy: str = "", warnings: Sequence[str] = ()) -> None:
        if not problems:
            raise InternalError("a model was refused without a cause")
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
        count = f"{len(self.problems)} unsupported thing" + ("s" if len(self.problems) != 1 else "")
        super().__init__("\n".join([f"{count} in this model:", *(f"  - {p}" for p in self.problems)]), remedy)


class ConfigError(TorshcError):
    """An option, a YAML file or a rule is wrong (file, line, what was meant)."""

    exit_code = 4


class ToolchainError(TorshcError):
    """No compiler was found, or one failed (its command and the end of its messages)."""

    exit_code = 5


class RunError(TorshcError):
    """A run was asked with inputs that do not fit the model, or a kernel that a person edited ended it."""

    exit_code = 6


class BundleError(TorshcError):
    """A bundle is missing, altered or not for this machine."""

    exit_code = 7


class OutputError(TorshcError):
    """A result could not be written."""

    exit_code = 8


class ResourceError(TorshcError):
    """The system refused something: memory, open files, processes, reading or writing."""

    exit_code = 9


class InternalError(TorshcError):
    """A fault of torshc itself; names the pass and the node so that it can be reported."""

    exit_code = 70


# What to do when the system has no more of something, by the number of its error.
_REMEDIES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close other programs: the whole system has too many open files",
    errno.ENOMEM: "use smaller shapes, raise the limit of memory (ulimit -v), or use a machine with more",
    errno.EAGAIN: "raise the limit of processes (ulimit -u), or use fewer at once (-j 1)",
    errno.ENOSPC: "free some space",
    errno.EROFS: "write elsewhere, or make the file system writable",
    errno.EDQUOT: "free some space, or ask for a larger quota",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EIO: "the system's log may say more about the device",
}


def resource_error(error: OSError | MemoryError, what: str) -> ResourceError | None:
    """The error for what the system refused; None where the cause may lie elsewhere, as with a file that is not there.

    Args:
        error: what was raised.
        what: what could not be done ("cannot start clang").

    >>> print(resource_error(OSError(errno.EMFILE, "Too many open files"), "cannot start clang"))
    cannot start clang: Too many open files
      remedy: raise the limit of open files (ulimit -n)
    >>> resource_error(FileNotFoundError(errno.ENOENT, "No such file"), "cannot start clang")
    """
    number = errno.ENOMEM if isinstance(error, MemoryError) else error.errno or 0
    if number not in _REMEDIES:
        return None
    return ResourceError(f"{what}: {os.strerror(number)}", _REMEDIES[number])


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A hint `; did you mean 'x'?` for a misspelt word, or nothing.

    >>> did_you_mean("compil", ["compile", "run"])
    "; did you mean 'compile'?"
    >>> did_you_mean("left", ["LEFT", "RIGHT"])
    "; did you mean 'LEFT'?"
    >>> did_you_mean("zzz", ["compile"])
    ''
    """
    import difflib  # start-up: only a message needs it

    alike = {k.casefold(): k for k in known}
    close = difflib.get_close_matches(word.casefold(), alike, n=1, cutoff=0.6)
    return f"; did you mean {alike[close[0]]!r}?" if close else ""
