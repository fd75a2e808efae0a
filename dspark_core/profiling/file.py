"""Profiles in the cache folder, a file for each key: read and checked, written whole or not at all.

A file that is damaged, or holds something else than its name says, is not used: a session then has no step curve, and
says why. Layout: ``profiles/NAME-DIGEST.json`` below `storage.cache_root`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock, Timeout

from dspark_core.errors import DSparkError, ModelUnavailableError, ParameterError, ResourceError
from dspark_core.fields import read_object
from dspark_core.files import write_json
from dspark_core.profiling.profile import ProfileKey, StepProfile, check_profile
from dspark_core.storage import cache_root, way_to_repair
from dspark_core.typed_json import decode

COMMAND = "python -m dspark_core profile"

_FORMAT = 4  # 3 had one price for every request more; 2 no verification; 1 no drafts in the probes of drafting
_LARGEST_HEADER = 2**27


def profile_path(key: ProfileKey) -> Path:
    """Where the profile of ``key`` lies, or would lie."""
    digest = hashlib.sha256(json.dumps(asdict(key), sort_keys=True).encode()).hexdigest()
    name = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in key.model)
    return cache_root() / "profiles" / f"{name[:60]}-{digest[:16]}.json"


def read_profile(key: ProfileKey) -> tuple[StepProfile | None, str]:
    """The stored profile of ``key``, or None and the reason why there is none to use."""
    try:
        path = profile_path(key)
        if not path.exists():
            return None, (
                f"not profiled: no step times are stored for this model, type, device, thread count and set of tapped "
                f"layers. Measure them: {COMMAND}."
            )
        return _checked(path, key), ""
    except (DSparkError, OSError) as error:
        return None, f"not profiled: {error}"


def write_profile(profile: StepProfile) -> Path:
    """Store ``profile`` under its key; an older one stays whatever fails. ResourceError when the disk refuses."""
    path = profile_path(profile.key)
    write_json(path, {"format": _FORMAT, **asdict(profile)}, indent=1)
    return path


@contextmanager
def only_one() -> Iterator[None]:
    """Hold this for a measurement: two at a time would measure each other.

    Raises:
        ResourceError: another process is measuring, or the cache folder cannot be written.
    """
    folder = cache_root() / "profiles"
    lock = FileLock(folder / ".lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ResourceError(
            "Another process is measuring step times on this machine; both would be wrong. Wait until it has ended, "
            "then repeat the command."
        ) from error
    except (OSError, NotImplementedError) as error:  # filelock's, where a file system has no locks
        raise ResourceError(
            f"{folder} cannot be written ({getattr(error, 'strerror', None) or error}), so a profile could not be "
            "kept. Set DSPARK_CACHE to a folder that can be written."
        ) from error
    try:
        yield
    finally:
        lock.release()


def weights_id(folder: Path) -> str:
    """What the times of a model in ``folder`` depend on, as a digest: its config, and its files' sizes and headers.

    The headers name every tensor with type and shape. The values are left out: they cost a second and more to read at
    each start, and no time depends on them.

    Raises:
        ModelUnavailableError: a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        digest.update((folder / "config.json").read_bytes())
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                size = min(int.from_bytes(file.read(8), "little"), _LARGEST_HEADER)
                digest.update(f"\n{path.name} {path.stat().st_size}\n".encode() + file.read(size))
    except OSError as error:
        raise ModelUnavailableError(
            f"{error.filename} cannot be read ({error.strerror}). {way_to_repair(folder)}"
        ) from error
    return digest.hexdigest()


def _checked(path: Path, key: ProfileKey) -> StepProfile:
    way_out = f"It is not used. Measure again: {COMMAND} --force."
    values = read_object(path, ParameterError, way_out)
    found = values.pop("format", None)
    if found != _FORMAT:
        raise ParameterError(
            f"{path} has the format {found!r:.40}; this version reads {_FORMAT}, with more of what a round costs. "
            f"{way_out}"
        )
    try:
        profile: StepProfile = decode(StepProfile, values, path.name)
        check_profile(profile)
    except (ParameterError, RecursionError) as error:
        raise ParameterError(f"{path} is damaged: {error} {way_out}") from error
    if profile.key != key:
        raise ParameterError(f"{path} belongs to another model, type or machine. {way_out}")
    return profile
