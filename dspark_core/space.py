"""The Spacefile: one manifest for hosts, from which README's front matter is made; requirements.txt comes along."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dspark_core.errors import DSparkError
from dspark_core.fields import Fields, shown
from dspark_core.files import write_whole_text

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
_CARD_FIRST = ("title", "emoji", "colorFrom", "colorTo")
# Beside its own errors, PyYAML lets those of its converters through (`!!int ""`, `!!bool x`) and of deep nesting.
_YAML_FAILS = (ValueError, LookupError, AttributeError, TypeError, RecursionError, yaml.YAMLError)
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
        try:
            return self.path.is_file() and self.path.read_text(encoding="utf-8") == self.text
        except UnicodeDecodeError:
            return False


def read_spacefile(root: Path) -> dict[str, Any]:
    """The manifest of the checkout at ``root``.

    Raises:
        SpacefileError: it is missing, not YAML, or a section or a key that README needs is missing, unknown or of the
            wrong kind.
    """
    path = root / "Spacefile"
    try:
        manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpacefileError(f"{path} cannot be read: {error}. Run this inside a checkout.") from error
    except _YAML_FAILS as error:
        raise SpacefileError(f"{path} cannot be read as YAML: {error}. Correct it there.") from error
    found = manifest if isinstance(manifest, dict) else {}
    if set(found) != set(_SECTIONS):
        has = ", ".join(map(shown, found)) or "none"
        raise SpacefileError(f"{path} must have exactly the sections {', '.join(_SECTIONS)}; it has {has}.")
    for name, kind in _SECTIONS.items():
        if not isinstance(found[name], kind):
            raise SpacefileError(
                f"{path}: {name} must be a {kind.__name__}, but is {shown(found[name])}; quote versions."
            )
    _check_keys(found, path)
    return found


def _check_keys(manifest: dict[str, Any], path: Path) -> None:
    """The keys that `front_matter` reads."""

    def fields(values: dict[str, Any], where: str) -> Fields:
        return Fields(values, f"{path}: {where}", SpacefileError, "Correct it there.")

    for section, keys in (("card", _CARD_FIRST), ("hardware", ("suggested", "startup_duration_timeout"))):
        for key in keys:
            fields(manifest[section], section).text(key)
    for model in manifest["models"]:
        if not isinstance(model, dict):
            raise SpacefileError(f"{path}: models has {shown(model)}; each must have name, hub_id and licence.")
        fields(model, "models").text("hub_id")


def front_matter(manifest: dict[str, Any]) -> str:
    """README's front matter, fences included, in the form that Hugging Face Spaces read."""
    card = manifest["card"]
    fields = {
        **{name: card[name] for name in _CARD_FIRST},
        **{name: manifest[name] for name in ("sdk", "sdk_version", "python_version", "app_file")},
        **{name: value for name, value in card.items() if name not in _CARD_FIRST},
        "models": [model["hub_id"] for model in manifest["models"]],
        "suggested_hardware": manifest["hardware"]["suggested"],
        "startup_duration_timeout": manifest["hardware"]["startup_duration_timeout"],
    }
    text: str = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=1000)
    return _FENCE + text + _FENCE


def requirements(root: Path) -> str:
    """The text of requirements.txt: the run-time dependencies of pyproject.toml.

    Raises:
        SpacefileError: it is missing, not TOML, or has no such list.
    """
    path = root / "pyproject.toml"
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise SpacefileError(f"{path} cannot be read as TOML: {error}. Run this inside a checkout.") from error
    project = Fields(values, str(path), SpacefileError, "Correct it there.").section("project")
    dependencies = Fields(project, f"{path}: project", SpacefileError, "Correct it there.").texts("dependencies")
    return _REQUIREMENTS_HEAD + "".join(f"{line}\n" for line in dependencies)


def products(root: Path) -> tuple[Product, ...]:
    """README.md and requirements.txt as they should be.

    Raises:
        SpacefileError: Spacefile, pyproject.toml or README.md cannot be used.
    """
    readme = root / "README.md"
    try:
        text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    except (OSError, ValueError) as error:
        raise SpacefileError(f"{readme} cannot be read: {error}. Save it as UTF-8 text.") from error
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
            write_whole_text(product.path, product.text)
        sys.stdout.write(f"{'wrote' if options.write else 'out of date:'} {product.path}\n")
    if not stale:
        sys.stdout.write("README's front matter and requirements.txt are up to date.\n")
    elif not options.write:
        sys.stdout.write("Repeat with --write.\n")
    return 1 if stale and not options.write else 0
