"""Who may import whom: app → ui → dspark_core, and inside the core only the arrows that its design allows."""

import subprocess
import sys

import pytest

from tests.sources import ROOT, imports_of

PLAIN_MODULES = ("params", "events", "errors")
SCHEDULING_MAY_USE = {
    "numpy",
    "psutil",
    "pynvml",
    "dspark_core.events",
    "dspark_core.params",
    "dspark_core.errors",
    "dspark_core.scheduling",
}
TELEMETRY_MAY_USE = {"dspark_core.events", "dspark_core.recording"}


def _violations(paths, forbidden):
    return [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in paths
        for module in imports_of(path)
        if forbidden(module)
    ]


def _is_of(module, packages):
    return any(module == package or module.startswith(package + ".") for package in packages)


def _files(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"{folder} has no modules: this test shows nothing"
    return files


def test_the_core_never_imports_the_page():
    assert _violations(_files("dspark_core"), lambda name: _is_of(name, ("gradio", "plotly", "ui", "app"))) == []


def test_the_page_never_imports_torch_transformers_or_the_app():
    heavy = ("torch", "transformers", "accelerate", "safetensors", "tokenizers", "gguf", "app")
    assert _violations(_files("ui"), lambda name: _is_of(name, heavy)) == []


def test_scheduling_uses_plain_values_only():
    def forbidden(name):
        return name.split(".")[0] not in sys.stdlib_module_names and not _is_of(name, SCHEDULING_MAY_USE)

    assert _violations(_files("dspark_core/scheduling"), forbidden) == []


def test_writing_files_needs_the_standard_library_and_errors_alone():
    def forbidden(name):
        return name.split(".")[0] not in sys.stdlib_module_names and name != "dspark_core.errors"

    assert _violations([ROOT / "dspark_core" / "files.py"], forbidden) == []


def test_params_events_and_errors_need_nothing_but_each_other():
    def forbidden(name):
        own = tuple(f"dspark_core.{module}" for module in PLAIN_MODULES)
        return name.split(".")[0] not in sys.stdlib_module_names and not _is_of(name, own)

    assert _violations([ROOT / "dspark_core" / f"{module}.py" for module in PLAIN_MODULES], forbidden) == []


def test_telemetry_reads_events_only():
    def forbidden(name):
        return name.split(".")[0] not in sys.stdlib_module_names and not _is_of(name, TELEMETRY_MAY_USE)

    assert _violations([ROOT / "dspark_core" / "telemetry.py"], forbidden) == []


def test_networks_know_nothing_of_engine_or_drafters():
    inner = ("dspark_core.engine", "dspark_core.decode_loop", "dspark_core.drafters", "dspark_core.loading")
    assert _violations(_files("dspark_core/modules"), lambda name: _is_of(name, inner)) == []


def test_the_engine_never_imports_benchmark_training_or_command_line():
    rooms = ("bench", "evaluate", "load_test", "sweep", "training", "cli", "infer", "loading")
    outer = tuple(f"dspark_core.{room}" for room in rooms)
    outer += ("dspark_core.calibration.command", "dspark_core.calibration.rollout")
    inside = [
        path for folder in ("target", "drafters", "scheduling", "modules") for path in _files(f"dspark_core/{folder}")
    ] + [ROOT / "dspark_core" / f"{name}.py" for name in ("engine", "decode_loop", "answer", "verify", "sampling")]
    assert _violations(inside, lambda name: _is_of(name, outer)) == []


def test_fitting_and_measuring_confidences_needs_numpy_alone():
    parts = (
        "rounds",
        "survival",
        "reliability",
        "ranking",
        "fit",
        "figures",
        "calibration",
        "report",
        "halves",
        "dial",
    )
    own = ("numpy", "dspark_core.errors", *(f"dspark_core.calibration.{part}" for part in parts))

    def forbidden(name):
        return name.split(".")[0] not in sys.stdlib_module_names and not _is_of(name, own)

    assert _violations([ROOT / "dspark_core" / "calibration" / f"{part}.py" for part in parts], forbidden) == []


def test_app_is_short_and_imports_the_page_alone():
    path = ROOT / "app.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 30
    allowed = {"ui", "dspark_core"} | sys.stdlib_module_names
    assert _violations([path], lambda name: name.split(".")[0] not in allowed) == []


@pytest.mark.parametrize(
    "module",
    [
        f"dspark_core.{name}"
        for name in (
            "events",
            "params",
            "errors",
            "telemetry",
            "scheduling.load",
            "cli",
            "space",
            "draft_folders",
            "sweep.command",
            "calibration.told",
            "calibration.halves",
            "calibration.dial",
            "calibration.recorded",
            "lab.crowd",
            "lab.comparison",
            "lab.appendix_a",
        )
    ],
)
def test_light_modules_load_no_torch(module):
    check = f"import sys, {module}; sys.exit(bool({{'torch', 'transformers', 'gradio'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0


def test_the_walk_sees_every_way_to_import(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.sources.ROOT", tmp_path)
    path = tmp_path / "package" / "inner" / "module.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "import a.b, c\nfrom d.e import f\nfrom . import g\nfrom ..h import i\n"
        "def late():\n    import j\n    importlib.import_module('k.l')\n"
        "if TYPE_CHECKING:\n    import only_types\n"
    )
    assert sorted(imports_of(path)) == ["a.b", "c", "d.e", "j", "k.l", "package.h", "package.inner"]


def test_only_the_drawing_of_png_files_needs_the_optional_matplotlib():
    drawing = [ROOT / "dspark_core" / "evaluate" / "png.py", ROOT / "dspark_core" / "training" / "curve.py"]
    paths = [path for path in _files("dspark_core") if path not in drawing]
    assert _violations(paths, lambda name: _is_of(name, ("matplotlib",))) == []
