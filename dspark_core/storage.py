"""The cache folder: where it is, one writer at a time, whole models or nothing.

Layout below the root: ``models/NAME`` (complete models, each with a manifest), ``tmp`` (work in progress, removed by
the next writer when its owner was killed), ``locks``, ``profiles`` (`dspark_core/profiling`). Reading a complete model
writes nothing.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from dspark_core.errors import ResourceError

Progress = Callable[[str, float], None]  # stage text, fraction 0..1 of the whole

_FORMAT = 1  # raised when the converter changes, so that old conversions are made again
_MANIFEST = "manifest.json"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST)


def no_progress(_stage: str, _fraction: float) -> None:
    """Report nothing."""


def cache_root() -> Path:
    """``DSPARK_CACHE``, or the user's cache folder of this platform.

    Raises:
        ResourceError: the path begins with a home folder that does not exist, or with a current one that is gone.
    """
    chosen = os.environ.get("DSPARK_CACHE") or _default_root()
    path = os.path.expanduser(chosen)  # unlike Path.expanduser it leaves unknown homes alone
    if path.startswith("~"):
        raise ResourceError(
            f"The cache folder {chosen} begins with a home folder that is unknown here, so models have no place. "
            "Set DSPARK_CACHE to the full path of a folder that can be written."
        )
    try:
        return Path(path).absolute()
    except OSError as error:
        raise ResourceError(
            f"The cache folder {chosen} is relative to the current folder, which is gone ({error.strerror}). "
            "Set DSPARK_CACHE to a full path, or change to a folder that exists."
        ) from error


def _default_root() -> str:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join("~", "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join("~", "Library", "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return os.path.join(base, "dspark")


def model_folder(name: str) -> Path:
    """Where the model ``name`` lies once it is complete."""
    return cache_root() / "models" / _file_name(name)


def way_to_repair(folder: Path) -> str:
    """What to do about a broken model in ``folder``: fetch again what is ours; a user's own folder is theirs alone."""
    with suppress(ResourceError):
        if folder.absolute().parent == cache_root() / "models":
            return f"Fetch it again: python -m dspark_core fetch {folder.name.replace('--', '/')} --force."
    return "Put the original file there again, or name another folder."


def read_source(folder: Path) -> str | None:
    """Where the complete model in ``folder`` came from; None when it is absent or files are missing or cut off.

    Compares sizes with the manifest and hashes nothing: a warm start has no time for it.
    """
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT:
            return None
        sizes = {name: (folder / name).stat().st_size for name in manifest["files"]}
        return str(manifest["source"]) if sizes == manifest["files"] else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


@contextmanager
def workspace(name: str, progress: Progress = no_progress) -> Iterator[Path]:
    """An empty folder for building the model ``name``, held by one process at a time and removed at the end.

    Raises:
        ResourceError: the cache cannot be written, is no folder, or the disk is full (also while the body runs).
    """
    root = cache_root()
    with _explained(root):
        with _refused(root):
            (root / "tmp").mkdir(parents=True, exist_ok=True)
            (root / "locks").mkdir(exist_ok=True)
            lock = FileLock(root / "locks" / f"{_file_name(name)}.lock")
            _acquire(lock, name, progress)
        try:
            for leftover in (root / "tmp").glob(f"{_file_name(name)}.*"):  # of a killed owner: we hold the lock
                shutil.rmtree(leftover, ignore_errors=True)
            work = Path(tempfile.mkdtemp(prefix=f"{_file_name(name)}.", dir=root / "tmp"))
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)
        finally:
            lock.release()


def require_space(size: int) -> None:
    """Check that ``size`` bytes are free where the cache is.

    Raises:
        ResourceError: they are not.
    """
    root = cache_root()
    free = shutil.disk_usage(root).free
    if free < size:
        raise ResourceError(
            f"Fetching the model needs {_megabytes(size)} of disk at {root}, where {_megabytes(free)} are free. "
            "Free some space, or set DSPARK_CACHE to a folder on another disk."
        )


def publish(built: Path, name: str, source: str) -> Path:
    """Make the finished folder ``built`` the model ``name``: manifest, flush to disk, then one rename.

    To be called inside ``workspace(name)``, with ``built`` in it.
    """
    sizes = {path.name: path.stat().st_size for path in built.iterdir()}
    manifest = {"format": _FORMAT, "source": source, "files": sizes}
    (built / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for path in built.iterdir():
        path.chmod(0o644)  # safetensors writes 0600; a container may fetch as one user and run as another
        _flush(path)
    _flush(built)
    final = model_folder(name)
    final.parent.mkdir(exist_ok=True)
    if final.exists():  # damaged, or from another source; a running process keeps its mapped files
        os.replace(final, built.parent / "replaced")
    os.replace(built, final)
    _flush(final.parent)
    return final


def folder_size(folder: Path) -> int:
    """Bytes of all files below ``folder``; files that vanish meanwhile count nothing."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            size += path.stat().st_size if path.is_file() else 0
    return size


def _file_name(name: str) -> str:
    return name.replace("/", "--")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot open folders
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _acquire(lock: FileLock, name: str, progress: Progress) -> None:
    while True:
        try:
            lock.acquire(timeout=1)
            return
        except Timeout:
            progress(f"Waiting for another process that fetches {name}", 0.0)


@contextmanager
def _refused(root: Path) -> Iterator[None]:
    """Whatever keeps the folders from being made is about the cache: say so, where `_explained` knows no better."""
    try:
        yield
    except (OSError, NotImplementedError) as error:  # filelock's, where a file system has no locks
        if isinstance(error, OSError) and error.errno in (*_NO_SPACE, *_NO_ACCESS, *_NO_FOLDER):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise ResourceError(
            f"The cache folder {root} cannot be made or used ({reason}), so the model cannot be stored. "
            "Set DSPARK_CACHE to a folder that can be written."
        ) from error


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    """Say what to do about the errors that a disk gives."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise ResourceError(
                f"The disk of the cache folder {root} is full, so the model could not be stored; nothing half-written "
                "was kept. Free some space, or set DSPARK_CACHE to a folder on another disk."
            ) from error
        if error.errno in _NO_ACCESS:
            raise ResourceError(
                f"The cache folder {root} cannot be written ({error.strerror}), so the model cannot be stored. "
                "Make it writable, or set DSPARK_CACHE to a folder that is."
            ) from error
        if error.errno in _NO_FOLDER:
            raise ResourceError(
                f"The cache folder {root} or a part of its path is a file, so nothing can be stored in it. "
                "Set DSPARK_CACHE to a folder."
            ) from error
        raise
