"""The checkout as text: its files, and what each module imports."""

import ast
import subprocess
from pathlib import Path

import dspark_core

ROOT = Path(dspark_core.__file__).resolve().parent.parent


def tracked_files():
    """Files of the checkout as git sees them, or as they lie there where there is no git."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    if not any(names):
        names = [str(path.relative_to(ROOT)) for top in ("dspark_core", "ui") for path in (ROOT / top).rglob("*")]
    return sorted(name for name in names if (ROOT / name).is_file() and "__pycache__" not in name)


def imports_of(path):
    """Full dotted names of what a file imports, anywhere in it; imports for type checking alone do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    package = ".".join(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            yield ".".join([*base, *([node.module] if node.module else [])])
        elif isinstance(node, ast.Call) and _called_name(node) in ("import_module", "__import__"):
            yield from (str(word.value) for word in node.args[:1] if isinstance(word, ast.Constant))


def _called_name(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))
