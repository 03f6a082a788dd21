"""Arrays of .npy and .npz files, which nobody has to trust."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def load_array(path: Path) -> Array:
    """The array of a .npy file, mapped where it is a plain file, and then of exactly the length that its header says.

    Raises:
        ValueError: the file is no such file, or damaged.
        OSError: it cannot be read.
    """
    plain = path.is_file()
    try:
        found = np.load(path, mmap_mode="r" if plain else None, allow_pickle=False)
    except OSError:
        raise
    except (Exception, MemoryError) as error:  # NumPy reads headers as Python's words, and may raise what that raises
        raise ValueError(f"it is no .npy file, or damaged ({type(error).__name__})") from error
    if not isinstance(found, np.ndarray):
        found.close()
        raise ValueError("it is no .npy file")
    if isinstance(found, np.memmap) and path.stat().st_size != found.offset + found.nbytes:
        raise ValueError(f"it has {path.stat().st_size} bytes, and its header says {found.offset + found.nbytes}")
    return found.view(np.ndarray)


def load_archive(path: Path, wanted: set[str] | None = None) -> dict[str, Array]:
    """The arrays of a .npz file, those of some names where they are given.

    Raises:
        ValueError: the file is no such file, damaged, or a member is no array.
        OSError: it cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files if wanted is None or name in wanted}
    except OSError:
        raise
    except (Exception, MemoryError) as error:  # as above, and what unpacking raises
        raise ValueError(f"it is no .npz file, or damaged ({type(error).__name__})") from error
    for name, array in found.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name!r} in it is no array")
    return found


__all__ = ["load_archive", "load_array"]
