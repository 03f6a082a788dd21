"""Files that a model refers to: found below the model's folder only, and checked."""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath

from .contents import Contents
from .model import Misfit

_COPY = "copy the file to where the link is"
_BESIDE = "save the model with its weights in a file beside it, and keep both together"


def locate(folder: Path | None, location: str) -> Path:
    """The path of a file that a model names.

    Raises:
        Misfit: when it is missing, or is anything but a regular file below the folder reached without links. A hard
            link makes a file of another folder look like one, so a file with several names is refused too.
    """
    if folder is None:
        raise Misfit(f"external data {location!r} of a model that was not read from a file", "give the model's path")
    pure = PurePosixPath(location)
    if not pure.parts or "\0" in location or "\\" in location or pure.is_absolute() or ".." in pure.parts:
        raise Misfit(f"external data {location!r} lies outside the model's folder", _BESIDE)
    path = folder
    for part in pure.parts:
        path = path / part
        try:
            status = path.lstat()
        except OSError as e:
            raise Misfit(f"external data {location!r} cannot be read: {e.strerror}", _BESIDE) from e
        if stat.S_ISLNK(status.st_mode):
            raise Misfit(f"external data {location!r} is reached through a link", _COPY)
    if not stat.S_ISREG(status.st_mode):
        raise Misfit(f"external data {location!r} is not a regular file", _BESIDE)
    if status.st_nlink > 1:
        raise Misfit(f"external data {location!r} has more than one hard link", "copy the file and use the copy")
    return path


class Folder:
    """The files beside a model."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._contents = Contents(follow=False)

    def bytes(self, location: str, offset: int, length: int) -> memoryview:
        """`length` bytes of a file from `offset`.

        Raises:
            Misfit: when the file cannot be used or is too short.
            ResourceError: the system refuses memory or to open a file.
        """
        return self._contents.read(locate(self.folder, location), f"external data {location!r}", offset, length)
