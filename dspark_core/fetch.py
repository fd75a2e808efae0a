"""The command ``fetch [NAME]``: bring a model into the cache, with a progress bar."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dspark_core.cache import ensure_model
from dspark_core.catalog import CATALOG
from dspark_core.storage import Progress, folder_size, read_source
from dspark_core.terminal import tell, write_text

_BAR_WIDTH = 30


def fetch(name: str, progress: Progress | None = None, from_hub: bool = False, force: bool = False) -> Path:
    """Fetch and convert the model ``name`` unless it is there already; returns its folder.

    Raises:
        ModelUnavailableError: see `dspark_core.cache.ensure_model`.
        ResourceError: the cache folder cannot be written or the disk is full.
    """
    return ensure_model(name, progress, from_hub=from_hub, force=force)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to a sub-parser."""
    names = ", ".join(entry.name for entry in CATALOG)
    parser.add_argument(
        "name", nargs="?", default=CATALOG[0].name, help=f"{names}, or a hub id owner/name (default: %(default)s)"
    )
    parser.add_argument("--from-hub", action="store_true", help="take the original weights from the model hub")
    parser.add_argument("--force", action="store_true", help="fetch again even when the model is there")


def run(args: argparse.Namespace) -> int:
    """Run the command: progress on stderr, one final line on stdout. Errors of the DSparkError family are raised."""
    bar = ProgressBar()
    try:
        folder = fetch(args.name, bar, args.from_hub, args.force)
    finally:
        bar.close()
    source = read_source(folder) or "local folder"
    write_text(sys.stdout, f"{args.name}: {folder} ({folder_size(folder) / 1e6:.0f} MB, from {source})\n")
    return 0


class ProgressBar:
    """Shows stages on stderr: a bar that redraws itself on a terminal, one line for each stage elsewhere."""

    def __init__(self) -> None:
        """Use stderr as it is now."""
        self._redraws = sys.stderr.isatty()
        self._last = ""

    def __call__(self, stage: str, fraction: float) -> None:
        """Show ``stage`` and ``fraction`` (0 to 1)."""
        if self._redraws:
            filled = round(_BAR_WIDTH * fraction)
            text = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {100 * fraction:3.0f} %  {stage}"
            tell("\r" + text.ljust(len(self._last)))
        else:
            text = stage.split(":")[0]  # without the running figures
            if text != self._last:
                tell(text + "\n")
        self._last = text

    def close(self) -> None:
        """End the line of the bar."""
        if self._redraws and self._last:
            tell("\n")
