"""The Spacefile is the one source of what a host is told; README and requirements.txt follow it."""

import ast
import re
import shutil
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from dspark_core.catalog import CATALOG
from dspark_core.cli import main
from dspark_core.space import SpacefileError, front_matter, products, read_spacefile, requirements
from tests.sources import ROOT
from tests.test_packaging import project, requirement_named

CARD_COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
OWN_VARIABLE = re.compile(r"DSPARK_[A-Z_]+|GRADIO_SERVER_[A-Z_]+|PORT")


@pytest.fixture(scope="module")
def manifest():
    return read_spacefile(ROOT)


@pytest.fixture
def checkout(tmp_path):
    """A copy of the files that the command works on."""
    for name in ("Spacefile", "README.md", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_readme_and_requirements_are_what_the_spacefile_and_pyproject_make():
    assert [product.path.name for product in products(ROOT) if not product.is_current] == []


def test_the_front_matter_is_what_a_space_accepts(manifest):
    text = front_matter(manifest)
    assert text.startswith("---\n")
    assert text.endswith("\n---\n")
    card = yaml.safe_load(text.strip("-\n"))
    assert {card["colorFrom"], card["colorTo"]} <= CARD_COLOURS
    assert len(card["short_description"]) <= 60
    assert card["sdk"] == "gradio"
    assert card["license"] == "mit"
    assert (ROOT / card["app_file"]).is_file()
    assert re.fullmatch(r"\d+(m|h)", card["startup_duration_timeout"])
    assert isinstance(card["python_version"], str)
    assert isinstance(card["sdk_version"], str)


def test_the_versions_agree_with_pyproject(manifest):
    assert Version(manifest["sdk_version"]) in requirement_named("gradio").specifier
    assert Version(manifest["python_version"]) in SpecifierSet(project()["requires-python"])


def test_the_models_are_those_of_the_catalogue(manifest):
    assert [(model["name"], model["hub_id"], model["licence"]) for model in manifest["models"]] == [
        (entry.name, entry.hub_id, entry.licence) for entry in CATALOG
    ]


def test_every_environment_variable_that_the_code_reads_is_described_and_no_other(manifest):
    read = {
        node.value
        for path in [ROOT / "app.py", *(ROOT / "ui").rglob("*.py"), *(ROOT / "dspark_core").rglob("*.py")]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and OWN_VARIABLE.fullmatch(str(node.value))
    }
    assert {variable["name"] for variable in manifest["environment"]} == read
    assert all(set(variable) == {"name", "default", "purpose"} for variable in manifest["environment"])


def test_the_run_command_starts_the_app_file_on_the_port(manifest):
    assert manifest["run"]["command"] == f"python {manifest['app_file']}"
    assert manifest["run"]["port"] == 7860


def test_requirements_are_the_run_time_dependencies_and_nothing_of_the_tests():
    lines = [line for line in requirements(ROOT).splitlines() if not line.startswith("#")]
    assert lines == project()["dependencies"]


def test_the_command_tells_what_is_out_of_date_and_writes_it(checkout, capsys):
    assert main(["space", "--root", str(checkout)]) == 0
    readme = checkout / "README.md"
    body = readme.read_text(encoding="utf-8").split("\n---\n", 1)[1]
    readme.write_text("---\ntitle: Something else\n---\n" + body, encoding="utf-8")
    (checkout / "requirements.txt").unlink()
    assert main(["space", "--root", str(checkout)]) == 1
    assert "out of date" in capsys.readouterr().out
    assert main(["space", "--root", str(checkout), "--write"]) == 0
    assert main(["space", "--root", str(checkout)]) == 0
    assert readme.read_bytes() == (ROOT / "README.md").read_bytes()


def test_a_readme_without_front_matter_or_absent_gets_one(checkout):
    for text in ("# Title\n", "", None):
        readme = checkout / "README.md"
        readme.unlink(missing_ok=True)
        if text is not None:
            readme.write_text(text, encoding="utf-8")
        assert main(["space", "--root", str(checkout), "--write"]) == 0
        assert readme.read_text(encoding="utf-8") == front_matter(read_spacefile(checkout)) + (text or "")
        assert main(["space", "--root", str(checkout)]) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: "card: [", "cannot be read as YAML"),
        (lambda _: "", "must have exactly the sections"),
        (lambda text: text + "\nextra: 1\n", "must have exactly the sections"),
        (lambda text: text.replace('"3.12"', "3.12"), "python_version must be a str"),
    ],
)
def test_a_broken_spacefile_is_refused_with_the_reason(checkout, change, message):
    path = checkout / "Spacefile"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(SpacefileError, match=message):
        read_spacefile(checkout)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  title: DSpark Playground\n", "", "card: the key 'title' is missing"),
        ("  title: DSpark Playground\n", "  title: [x]\n", "card: title is"),
        ("  suggested: cpu-basic", "  other: cpu-basic", "hardware: the key 'suggested' is missing"),
        ("  - name: smollm2-135m\n    hub_id: Hugging", "  - foo\n  - hub_id: Hugging", "models has 'foo'"),
        ("    hub_id: HuggingFaceTB/SmolLM2-135M-Instruct\n", "", "models: the key 'hub_id' is missing"),
        ("card:", "card: " + "[" * 100_000, "cannot be read as YAML"),
        ("port: 7860", "port: !!int ''", "cannot be read as YAML"),
        ("pinned: false", "pinned: !!bool x", "cannot be read as YAML"),
        ("pinned: false", "pinned: !!timestamp x", "cannot be read as YAML"),
    ],
)
def test_a_spacefile_that_lacks_what_a_host_needs_is_refused_with_the_reason(checkout, old, new, message, capsys):
    path = checkout / "Spacefile"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert main(["space", "--root", str(checkout)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pyproject.toml", b"[project", "cannot be read as TOML"),
        ("pyproject.toml", b"\xff", "cannot be read as TOML"),
        ("pyproject.toml", b"x = " + b"[" * 100_000, "cannot be read as TOML"),
        ("pyproject.toml", b"", "'dependencies' is missing"),
        ("pyproject.toml", b"project = 5", "project is 5"),
        ("pyproject.toml", b"[project]\nname = 'x'", "'dependencies' is missing"),
        ("pyproject.toml", b"[project]\ndependencies = [5]", "dependencies is [5]"),
        ("README.md", b"# \xff", "Save it as UTF-8"),
        ("Spacefile", b"\xff", "cannot be read as YAML"),
    ],
)
def test_a_broken_source_file_is_refused_with_the_reason(checkout, name, content, message, capsys):
    (checkout / name).write_bytes(content)
    assert main(["space", "--root", str(checkout)]) == 2
    assert message in capsys.readouterr().err


def test_a_made_file_that_is_no_text_is_out_of_date_and_written_anew(checkout):
    (checkout / "requirements.txt").write_bytes(b"\xff")
    assert main(["space", "--root", str(checkout), "--write"]) == 0
    assert (checkout / "requirements.txt").read_bytes() == (ROOT / "requirements.txt").read_bytes()


def test_an_open_front_matter_is_refused(checkout):
    (checkout / "README.md").write_text("---\ntitle: x\n", encoding="utf-8")
    with pytest.raises(SpacefileError, match="never closes it"):
        products(checkout)


def test_no_spacefile_is_a_reason(tmp_path):
    with pytest.raises(SpacefileError, match="Run this inside a checkout"):
        read_spacefile(Path(tmp_path))
