"""The Spacefile: one manifest for hosts, from which README's front matter is made; requirements.txt comes along."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dspark_core.errors import DSparkError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FENCE = "---\n"
_SECTIONS = {
    "card": dict,
    "sdk": str,
    "sdk_version": str,
    "python_version": str,
    "app_file": str,
    "hardware": dict,
    "models": list,
    "environment": list,
    "run": dict,
}
_REQUIREMENTS_HEAD = "# Made from pyproject.toml by: python -m dspark_core space --write\n"


class SpacefileError(DSparkError):
    """The Spacefile, README.md or pyproject.toml cannot be used as they are."""


@dataclass(frozen=True, slots=True)
class Product:
    """A file as it should be.

    Attributes:
        path: where it belongs.
        text: its whole content.
    """

    path: Path
    text: str

    @property
    def is_current(self) -> bool:
        """Whether the file has exactly this content."""
        return self.path.is_file() and self.path.read_text(encoding="utf-8") == self.text


def read_spacefile(root: Path) -> dict[str, Any]:
    """The manifest of the checkout at ``root``.

    Raises:
        SpacefileError: it is missing, not YAML, or a section is missing, unknown or of the wrong kind.
    """
    path = root / "Spacefile"
    try:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SpacefileError(f"{path} cannot be read as YAML: {error}. Run this inside a checkout.") from error
    found = manifest if isinstance(manifest, dict) else {}
    if set(found) != set(_SECTIONS):
        has = ", ".join(map(str, found)) or "none"
        raise SpacefileError(f"{path} must have exactly the sections {', '.join(_SECTIONS)}; it has {has}.")
    for name, kind in _SECTIONS.items():
        if not isinstance(found[name], kind):
            raise SpacefileError(f"{path}: {name} must be a {kind.__name__}, but is {found[name]!r}; quote versions.")
    return found


def front_matter(manifest: dict[str, Any]) -> str:
    """README's front matter, fences included, in the form that Hugging Face Spaces read."""
    card = manifest["card"]
    fields = {
        **{name: card[name] for name in ("title", "emoji", "colorFrom", "colorTo")},
        **{name: manifest[name] for name in ("sdk", "sdk_version", "python_version", "app_file")},
        **{name: value for name, value in card.items() if name not in ("title", "emoji", "colorFrom", "colorTo")},
        "models": [model["hub_id"] for model in manifest["models"]],
        "suggested_hardware": manifest["hardware"]["suggested"],
        "startup_duration_timeout": manifest["hardware"]["startup_duration_timeout"],
    }
    text: str = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=1000)
    return _FENCE + text + _FENCE


def requirements(root: Path) -> str:
    """The text of requirements.txt: the run-time dependencies of pyproject.toml."""
    with (root / "pyproject.toml").open("rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    return _REQUIREMENTS_HEAD + "".join(f"{line}\n" for line in dependencies)


def products(root: Path) -> tuple[Product, ...]:
    """README.md and requirements.txt as they should be."""
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    wanted = front_matter(read_spacefile(root)) + _without_front_matter(text)
    return Product(readme, wanted), Product(root / "requirements.txt", requirements(root))


def _without_front_matter(text: str) -> str:
    if not text.startswith(_FENCE):
        return text
    _, closed, rest = text.removeprefix(_FENCE).partition("\n" + _FENCE)
    if not closed:
        raise SpacefileError("README.md opens a front matter with --- and never closes it. Close it or remove it.")
    return rest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``python -m dspark_core space``."""
    parser.add_argument("--write", action="store_true", help="write README's front matter and requirements.txt")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (default: the current folder)")


def run(options: argparse.Namespace) -> int:
    """Check the generated files, or write them; 1 when one is out of date."""
    stale = [product for product in products(options.root) if not product.is_current]
    for product in stale:
        if options.write:
            product.path.write_text(product.text, encoding="utf-8")
        sys.stdout.write(f"{'wrote' if options.write else 'out of date:'} {product.path}\n")
    if not stale:
        sys.stdout.write("README's front matter and requirements.txt are up to date.\n")
    elif not options.write:
        sys.stdout.write("Repeat with --write.\n")
    return 1 if stale and not options.write else 0
