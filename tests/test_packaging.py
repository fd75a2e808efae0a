"""What is installed: bounded dependencies, every imported package declared, every data file in the wheel."""

import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dspark_core.cli import parse
from tests import toy_session
from tests.sources import ROOT, imports_of, tracked_files
from ui.endpoints import NAMES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DISTRIBUTIONS = {"pynvml": "nvidia-ml-py", "yaml": "pyyaml"}  # where module and distribution differ in name
OPTIONAL = {"tomli"}  # only for Python 3.10


def project():
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def requirement_named(name):
    return next(item for item in map(Requirement, project()["dependencies"]) if item.name.lower() == name)


def test_the_dependencies_that_the_project_promises_are_there_with_their_bounds():
    assert "6.31.0" in requirement_named("gradio").specifier
    assert "6.32.0" not in requirement_named("gradio").specifier
    assert str(requirement_named("torch").specifier) in (">=2.8,<2.14", "<2.14,>=2.8")
    assert "5.0.0" in requirement_named("transformers").specifier
    assert "6.0.0" not in requirement_named("transformers").specifier
    for name in ("plotly", "nvidia-ml-py", "psutil", "safetensors", "gguf", "accelerate"):
        assert requirement_named(name)


def test_every_dependency_is_bounded_above_and_below():
    for requirement in map(Requirement, [*project()["dependencies"], *project()["optional-dependencies"]["train"]]):
        operators = {item.operator for item in requirement.specifier}
        assert {"<", ">="} <= operators, f"{requirement} has no bound on one side"


def test_the_extras_are_test_and_train():
    assert set(project()["optional-dependencies"]) == {"test", "train"}


def test_every_package_that_the_code_imports_is_declared():
    told = [*project()["dependencies"], *project()["optional-dependencies"]["train"]]
    declared = {re.sub(r"[-_.]+", "-", Requirement(line).name).lower() for line in told}
    for path in [ROOT / "app.py", *(ROOT / "dspark_core").rglob("*.py"), *(ROOT / "ui").rglob("*.py")]:
        for module in (name.split(".")[0] for name in imports_of(path)):
            if module in sys.stdlib_module_names or module in ("dspark_core", "ui") or module in OPTIONAL:
                continue
            name = DISTRIBUTIONS.get(module, module).replace("_", "-")
            assert name in declared, f"{path.relative_to(ROOT)} imports {module}, which pyproject.toml does not name"


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_packages(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    source = tmp_path / "source"
    for name in tracked_files():  # a copy: building in the checkout would leave a build folder there
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / name).read_bytes())
    subprocess.run([*build, "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = {name for name in tracked_files() if name.startswith(("dspark_core/", "ui/"))}
    assert wanted - inside == set()
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert any(name.endswith("licenses/NOTICE") for name in inside)


def test_the_licences_are_stated():
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert "SmolLM2" in notice
    assert "Apache License, Version 2.0" in notice


def test_make_run_and_make_test_stand_in_the_first_lines_of_the_readme_and_the_pip_lines_below():
    body = (ROOT / "README.md").read_text(encoding="utf-8").split("\n---\n", 1)[1]
    first_lines = "\n".join(body.strip().splitlines()[:20])
    assert "make run" in first_lines
    assert "make test" in first_lines
    for line in ("python3 -m venv .venv", "-m pip install --editable .", "-m dspark_core fetch", "app.py"):
        assert line in body


def test_ci_runs_make_test_and_nothing_else():
    commands = [
        line
        for line in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
        if re.search(r"\b(make|pip|pytest|python3?|ruff|mypy|apt-get)\b", line) and not line.lstrip().startswith("#")
    ]
    assert [line for line in commands if line.startswith("make ")] == ['make test 2>&1 | tee "$log"']
    assert all("closing=" in line for line in commands if not line.startswith("make "))


def test_the_readmes_tree_is_the_real_one():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = re.search(r"<!-- tree:begin -->\n```\n(.*?)```\n<!-- tree:end -->", readme, re.DOTALL)
    assert tree, "README.md has no tree between its markers"
    told = set()
    folders: list[str] = []
    for line in tree[1].splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth:] = [name] if name.endswith("/") else []
        told.add("".join(folders) if name.endswith("/") else "".join(folders[:depth]) + name)
    missing = {name for name in told if not (ROOT / name).exists()}
    assert missing == set(), "README.md's tree names what is not there"
    hidden = {name for name in _worth_telling() if name not in told}
    assert hidden == set(), "README.md's tree leaves out"


def _worth_telling():
    """Every top-level file, every folder of the packages that holds code, and every module of dspark_core itself."""
    for name in tracked_files():
        path = Path(name)
        if len(path.parts) == 1 and not name.startswith("."):
            yield name
        if path.parts[0] in ("dspark_core", "ui") and path.suffix == ".py":
            yield path.parent.as_posix() + "/"
        if path.parent == Path("dspark_core") and path.suffix == ".py" and not path.name.startswith("__"):
            yield name


def _code_blocks(language):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)


def test_every_command_line_of_the_readme_is_understood(capsys):
    lines = [line for block in _code_blocks("sh") for line in block.splitlines() if "-m dspark_core " in line]
    assert len(lines) >= 8
    for line in lines:
        words = shlex.split(line.split("-m dspark_core ")[1])
        if "--help" in words:
            with pytest.raises(SystemExit, match="0"):
                parse(words)
        else:
            assert parse(words).run
    capsys.readouterr()


def test_the_python_of_the_readme_runs(monkeypatch, capsys):
    monkeypatch.setattr("dspark_core.api.open_session", toy_session.open_session)
    (block,) = [block for block in _code_blocks("python") if "dspark_core.api" in block]
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.count("\n") > 10


def test_the_programs_example_of_the_readme_calls_every_endpoint_and_no_other():
    (block,) = [block for block in _code_blocks("python") if "gradio_client" in block]
    compile(block, "README.md", "exec")
    assert {name.strip("/") for name in re.findall(r'api_name="([^"]+)"', block)} == set(NAMES)
