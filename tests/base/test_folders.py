"""Scratch folders: removed at the end, or by the next process when their maker was killed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from torshc.base.folders import private_folder, scratch_folder
from torshc.bundle.build import work_folder


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def killed(keep: bool = False) -> None:
    """Leaves a folder of a process that was killed while it was building there."""
    child = os.fork()
    if not child:
        with work_folder(keep=keep) as folder:
            (folder / "src").mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with scratch_folder() as living:
        killed()
        assert len([*tmp_path.iterdir()]) == 2
        with scratch_folder() as other:
            assert {*tmp_path.iterdir()} == {living, other}
            assert living.stat().st_mode & 0o777 == 0o700
    assert not [*tmp_path.iterdir()]


def test_what_is_to_be_kept_is_kept(tmp_path: Path) -> None:
    killed(keep=True)
    with pytest.raises(KeyError), scratch_folder(keep=True) as kept:
        raise KeyError
    with scratch_folder(), scratch_folder(keep=True):
        pass
    assert kept.exists() and len([*tmp_path.iterdir()]) == 2


def test_without_a_handle_there_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="too many"), scratch_folder():
        pass
    assert not [*tmp_path.iterdir()]


def test_what_hinders_a_removal_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, rmtree = [], shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda *at, **how: calls.append(at) or (calls[1:] and rmtree(*at, **how)))
    with scratch_folder() as folder:
        (folder / "src").mkdir()
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folders_of_others_and_links_are_left_alone(tmp_path: Path) -> None:
    foreign, elsewhere = tmp_path / "torshc-scratch-foreign", tmp_path / "elsewhere"
    for folder in (foreign, elsewhere):
        folder.mkdir()
    os.chown(foreign, 12345, -1)
    (tmp_path / "torshc-scratch-link").symlink_to(elsewhere)
    (tmp_path / "torshc-scratch-file").touch()
    with scratch_folder():
        pass
    assert len([*tmp_path.iterdir()]) == 4


def test_where_no_folder_can_be_made() -> None:
    """Nobody makes one below /proc, and the system says that the folder around it is missing, which it is not."""
    with pytest.raises(FileNotFoundError):
        private_folder(Path("/proc/self/cache/objects"))
