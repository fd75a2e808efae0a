"""From names to a running session: preflight checks, target, drafters, engine."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from dspark_core.admission import Limits
from dspark_core.apart import apart
from dspark_core.cache import ensure_model
from dspark_core.calibration.file import read_calibration
from dspark_core.catalog import ModelEntry, find_model
from dspark_core.checkpoint import load_drafter
from dspark_core.decode_loop import DecodeLoop
from dspark_core.draft_folders import DFLASH, LM, DraftFolder, find_draft_folders, lender_of_dflash
from dspark_core.drafters.base import Drafter
from dspark_core.drafters.dspark import DSparkDrafter
from dspark_core.drafters.lm import LmDrafter, load_lm_drafter
from dspark_core.drafters.ngram import NUM_DRAFT_TOKENS, NgramDrafter
from dspark_core.drafters.none import NoneDrafter
from dspark_core.drafters.vocabulary import read_draft_vocabulary
from dspark_core.engine import Engine
from dspark_core.errors import ModelUnavailableError, ParameterError, ResourceError
from dspark_core.params import GenerationRequest, SamplingParams, ScheduleParams
from dspark_core.profiling.file import read_profile, weights_id
from dspark_core.profiling.measure import tapped_by
from dspark_core.profiling.profile import ProfileKey, StepProfile
from dspark_core.profiling.report import line
from dspark_core.scheduling import POLICIES
from dspark_core.scheduling.load import open_load_sensor
from dspark_core.scheduling.step_curve import StepCurve
from dspark_core.storage import Progress, no_progress
from dspark_core.target.llama import LlamaTarget
from dspark_core.target.tokenizer import ChatTokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What runs, for the screen.

    Attributes:
        model: the target's name.
        device_label: "CPU (AMD EPYC, 2 threads)" or "cuda:0 (NVIDIA …)".
        dtype: "bfloat16", "float16" or "float32".
        num_draft_tokens: the largest γ of the drafters.
        drafters: name → note, the names that a request may ask for; the default comes first.
        policies: names of the policies that can serve here: without a step curve, those that need none.
        max_context: tokens that prompt and answer may have together.
        step_curve: where the step times come from, or why there are none.
        step_times: the curve itself: tokens in the pass, and seconds; empty where there is none.
    """

    model: str
    device_label: str
    dtype: str
    num_draft_tokens: int
    drafters: Mapping[str, str]
    policies: tuple[str, ...]
    max_context: int
    step_curve: str = "not profiled"
    step_times: tuple[tuple[int, float], ...] = ()


class _DisturbedError(Exception):
    """Somebody asks for something while step times are measured."""


class Session:
    """A loaded target with its drafters behind one engine. Close it, or use it as a context manager.

    The step times stored under ``profile_key`` become ``step_curve``; None where there are none to use.
    """

    def __init__(
        self,
        target: LlamaTarget,
        tokenizer: ChatTokenizer,
        drafters: Mapping[str, Drafter],
        profile_key: ProfileKey,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits()
        self.target = target
        self.tokenizer = tokenizer
        self.drafters = drafters
        self.profile_key = profile_key
        self.profile: StepProfile | None = None
        self.step_curve: StepCurve | None = None
        self._closing = False
        sensor = open_load_sensor(str(target.device), uuid=card_uuid(target.device))
        self._loop = DecodeLoop(target, tokenizer, drafters, sensor, full_batch=limits.max_active)
        self.engine = Engine(self._loop, limits)
        profile, not_profiled = read_profile(profile_key)
        self.info = SessionInfo(
            model=target.name,
            device_label=device_label(target.device),
            dtype=str(target.dtype).removeprefix("torch."),
            num_draft_tokens=max(drafter.num_draft_tokens for drafter in drafters.values()),
            drafters={name: drafter.note for name, drafter in drafters.items()},
            policies=tuple(name for name, policy in POLICIES.items() if not policy.needs_curve),
            max_context=target.max_context,
            step_curve=not_profiled,
        )
        if profile is not None:
            self.use_profile(profile)

    def use_profile(self, profile: StepProfile) -> None:
        """Schedule by these step times from the next round on; all policies can serve then."""
        gammas = {name: drafter.num_draft_tokens for name, drafter in self.drafters.items()}
        self.profile, self.step_curve = profile, profile.curve_for(gammas.items())
        self._loop.step_curve = self.step_curve
        self.info = replace(
            self.info,
            policies=tuple(POLICIES),
            step_curve=line(profile, profile.lacks(gammas.items())),
            step_times=tuple(zip(self.step_curve.tokens, self.step_curve.smoothed_s, strict=True)),
        )

    def measure_steps(self, budget_s: float, progress: Progress) -> bool:
        """Measure what a step costs, in the engine's thread between two requests; keep it, and use it from then on.

        Args:
            budget_s: seconds, as `profiling.measure.measure` takes them.
            progress: is told the time left, often; an exception of it ends the measuring.

        Returns:
            False when a request came: times beside others would be wrong, so nothing is kept, and it has not to wait.

        Raises:
            ParameterError, ResourceError: as `measure` and `profiling.file` raise them.
        """
        from dspark_core.profiling.command import measure_and_store

        def alone(stage: str, fraction: float) -> None:
            if self.engine.num_active or self._closing:
                raise _DisturbedError
            progress(stage, fraction)

        stored, _ = read_profile(self.profile_key)  # by another process meanwhile
        try:
            profile = stored or measure_and_store(self, budget_s, alone, self.engine.call)
        except _DisturbedError:
            return False
        self.engine.call(lambda: self.use_profile(profile))  # a round has one curve from its beginning to its end
        return True

    def request(
        self,
        messages: Sequence[Mapping[str, str]],
        sampling: SamplingParams | None = None,
        schedule: ScheduleParams | None = None,
        drafter: str | None = None,
    ) -> GenerationRequest:
        """A request from chat messages (role, content), checked: what it names exists, and it fits the context.

        Raises:
            ParameterError: an empty last message, a role or text the template refuses, a prompt beyond the context.
            ModelUnavailableError: the model's chat template fails on this conversation.
        """
        if not messages or not str(messages[-1].get("content", "")).strip():
            raise ParameterError("The prompt is empty. Write something to answer.")
        request = GenerationRequest(
            self.tokenizer.encode_chat(messages),
            sampling or SamplingParams(),
            schedule or ScheduleParams(),
            drafter or self.default_drafter,
        )
        self.engine.check(request)
        return request

    @property
    def default_drafter(self) -> str:
        """The first drafter that was asked for, else plain decoding: the first of the list."""
        return next(iter(self.drafters))

    def close(self) -> None:
        """Stop the engine and the load sensor; safe to repeat."""
        self._closing = True
        self.engine.close()
        self.engine.load_sensor.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(
    model: str = "smollm2-135m",
    *,
    draft_model: str = "auto",
    device: str = "auto",
    dtype: str = "auto",
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Session:
    """Load a model and its drafters, fetching what is missing.

    Args:
        model: a name of the catalogue, a hub id, or a local Hugging Face folder.
        draft_model: "auto" (those that ship for this model, if any), "none", a shipped name, a folder, or several of
            these with commas between; the first is the default.
        device: "auto" (CUDA if there is one), "cpu", "cuda" or "cuda:i".
        dtype: "auto" (bfloat16; float16 on cards without it), "float32", "bfloat16" or "float16".
        limits: how many requests run and wait at once; None takes the defaults of `Limits`.
        progress: is told the stage and the fraction done.

    Raises:
        ModelUnavailableError, CheckpointError, ParameterError, ResourceError: with the way out in the message.
    """
    report = progress or no_progress
    torch_device = choose_device(device)
    torch_dtype = choose_dtype(dtype, torch_device)
    found = find_model(model)
    find_draft_folders(found, draft_model)  # an unknown drafter is refused before anything is fetched or loaded
    folder = ensure_model(model, lambda stage, fraction: report(stage, 0.8 * fraction))
    return apart(lambda: _loaded(found, draft_model, folder, torch_dtype, torch_device, limits, report))


def _loaded(
    found: ModelEntry | Path,
    draft_model: str,
    folder: Path,
    torch_dtype: torch.dtype,
    torch_device: torch.device,
    limits: Limits | None,
    report: Progress,
) -> Session:
    report("Loading the model", 0.85)
    tokenizer = ChatTokenizer.load(folder)
    target = LlamaTarget.load(
        folder,
        dtype=torch_dtype,
        device=torch_device,
        name=found.name if isinstance(found, ModelEntry) else folder.resolve().name,
        stop_token_ids=tokenizer.stop_token_ids,
    )
    if tokenizer.vocab_size > target.vocab_size:
        raise ModelUnavailableError(
            f"The tokenizer in {folder} has {tokenizer.vocab_size} tokens, the model only {target.vocab_size}: they do "
            "not belong together. Take tokenizer.json and config.json of one and the same model."
        )
    report("Loading the drafters", 0.95)
    drafters = load_drafters(found, draft_model, target, tokenizer)
    session = Session(target, tokenizer, drafters, profile_key_of(target, folder, drafters), limits)
    report("Ready", 1.0)
    return session


def profile_key_of(target: LlamaTarget, folder: Path, drafters: Mapping[str, Drafter]) -> ProfileKey:
    """What the step times of the model in ``folder`` with these drafters are stored under. ModelUnavailableError."""
    return ProfileKey(
        model=target.name,
        weights=weights_id(folder),
        dtype=str(target.dtype).removeprefix("torch."),
        device=device_label(target.device),
        threads=torch.get_num_threads(),
        torch=str(torch.__version__),
        taps=tapped_by(drafters.values()),
    )


def load_drafters(
    model: ModelEntry | Path, draft_model: str, target: LlamaTarget, tokenizer: ChatTokenizer | None = None
) -> dict[str, Drafter]:
    """The drafters that ``draft_model`` names, by name, and after them plain decoding and prompt look-up.

    Where a DSpark drafter is loaded and no dflash was trained, "dflash" is the first of them with its head switched
    off. With a ``tokenizer``, a language model that drafts has to have the same one.

    Raises:
        ModelUnavailableError: a folder that was asked for does not exist.
        CheckpointError: it is no drafter for this target.
        ParameterError: the names exclude each other (see `find_draft_folders`).
    """
    folders = find_draft_folders(model, draft_model)
    vocabulary = None if tokenizer is None else tokenizer.vocabulary
    loaded = {name: _load_drafter(folder, target, vocabulary) for name, folder in folders.items()}
    for name, drafter in loaded.items():
        drafter.name = name
    lender = loaded.get(lender_of_dflash(folders) or "")
    drafters: dict[str, Drafter] = {**loaded}
    if isinstance(lender, DSparkDrafter):
        drafters[DFLASH] = lender.without_head()
    longest = max((drafter.num_draft_tokens for drafter in loaded.values()), default=NUM_DRAFT_TOKENS)
    return {**drafters, "none": NoneDrafter(), "ngram": NgramDrafter(num_draft_tokens=longest)}


def _load_drafter(
    folder: DraftFolder, target: LlamaTarget, vocabulary: dict[str, int] | None
) -> DSparkDrafter | LmDrafter:
    if folder.kind == LM:
        return load_lm_drafter(folder.path, target, vocabulary)
    # Sums over the tapped layers leave float16's range, so a float16 target gets a float32 drafter.
    dtype = torch.float32 if target.dtype == torch.float16 else target.dtype
    loaded = load_drafter(folder.path, dtype=dtype, device=target.device)
    draft_vocabulary = read_draft_vocabulary(folder.path, target.vocab_size)
    calibration, note = read_calibration(folder.path, loaded.config.block_size)
    return DSparkDrafter(loaded, target, draft_vocabulary=draft_vocabulary, calibration=calibration, note=note)


def choose_device(device: str) -> torch.device:
    """The torch device of that name; "auto" takes CUDA if there is one. Raises ParameterError, ResourceError."""
    kind, _, number = device.partition(":")
    plain_number = number.isascii() and number.isdigit() and len(number) < 4
    if kind not in ("auto", "cpu", "cuda") or (":" in device and (kind != "cuda" or not plain_number)):
        raise ParameterError(f"device is {device!r}; say auto, cpu, cuda or cuda:0, cuda:1, …")
    if device == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if kind == "cpu":
        return torch.device("cpu")
    index = int(number or 0)
    if index >= torch.cuda.device_count():
        raise ResourceError(
            f"device is {device!r}; PyTorch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices here. "
            "Say cpu or auto, or install a CUDA build of PyTorch and a driver."
        )
    return torch.device("cuda", index)


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The torch dtype of that name; "auto" is bfloat16 where the device computes it well. Raises ParameterError."""
    if dtype == "auto":
        if device.type == "cuda" and not torch.cuda.is_bf16_supported():
            return torch.float16
        return torch.bfloat16
    if dtype not in DTYPES:
        raise ParameterError(f"dtype is {dtype!r}; say auto, {', '.join(DTYPES)}.")
    return DTYPES[dtype]


def device_label(device: torch.device) -> str:
    """A device with its hardware's name, for screens and reports."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    threads = torch.get_num_threads()
    return f"CPU ({cpu_name()}, {threads} thread{'s' if threads > 1 else ''})"


def card_uuid(device: torch.device) -> str | None:
    """The UUID of a CUDA card, or of the MIG slice of one, which NVML knows it by; None for other devices."""
    if device.type != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)  # not every build of PyTorch tells it
    return None if uuid is None else str(uuid)


def cpu_name() -> str:
    """The processor's name as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
