"""A scripted session with the real one's surface: no model, every fate guaranteed, pace adjustable, steerable."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field, replace

from dspark_core.admission import Limits
from dspark_core.errors import ParameterError, ResourceError
from dspark_core.events import (
    Candidate,
    CommittedToken,
    DecodeRound,
    DraftToken,
    Fate,
    Finished,
    Inspection,
    LoadSample,
    NextToken,
    Prefilled,
    RoundTimings,
    Token,
    Waiting,
)
from dspark_core.pace import Pace
from dspark_core.params import GenerationRequest
from dspark_core.scheduling import DraftView, RoundView, load_for, policy_named

GAMMA = 7
FIRST_ID = 0x50000  # ids of the script's words by their place; the prompt's are those of its characters, all below it
WRONG_ID = 100  # and above it up to γ: drafts that are none of the text's words
HOSTILE = (
    "<img src=x onerror=\"document.title='pwned'\">",
    "${document.title='pwned'}",
    " `back`-ticks``` ",
    "<script>document.title='pwned'</script>",
    "{{value}} {%raw%}",
    "**bold** $$x^2$$ <b>b</b>",
    "&lt;amp&amp;",
    "\u202eRTL\u202c",
    "\n\n",
    " ",
    "\t",
    "\ufffd",
    "</div></li>",
    "[link](javascript:alert(1))",
)
PLAIN = (
    " The lighthouse keeper watched the grey sea and counted the ships that came home in the evening ,"
    " one after another , until the lamp was lit .\n\n"
)


def _plain_tokens():
    return [" " + word for word in PLAIN.replace("\n\n", "").split()] + ["\n\n"]


@dataclass(frozen=True)
class FakeInfo:
    model: str = "fake-target"
    device_label: str = "CPU (scripted)"
    dtype: str = "float32"
    num_draft_tokens: int = GAMMA
    drafters: dict = field(
        default_factory=lambda: {
            "dspark": "scripted drafter",
            "dflash": "no confidence head",
            "none": "plain decoding, the baseline",
        }
    )
    policies: tuple = ("threshold", "fixed", "banded")
    step_curve: str = "not profiled: scripted"
    max_context: int = 4096
    step_times: tuple = ()


class FakeSensor:
    def __init__(self, *, gpu=False):
        self.gpu = gpu
        self._count = 0

    def sample(self):
        self._count += 1
        use = 0.35 + 0.3 * ((self._count * 7) % 10) / 10
        if self.gpu:
            memory = (30 * 2**30, 80 * 2**30)
            return LoadSample("GPU 0 (scripted)", "gpu", use, *memory, 210.0 + 100 * use, energy_j=250.0 * self._count)
        return LoadSample("CPU", "cpu", use, 5 * 2**30, 16 * 2**30, None, "no NVML: this machine has no GPU")


class FakeGeneration:
    def __init__(self, engine, request, script, number, listener=None):
        self.request = request
        self.schedule = request.schedule
        self.number = number
        self._engine = engine
        self._script = script
        self._events = queue.SimpleQueue()
        self.cancelled = threading.Event()
        self.pace = Pace(time.monotonic, engine.max_held_s, lambda: None)
        self._exhausted = listener is not None
        self._tell = listener or self._events.put
        threading.Thread(target=self._run, daemon=True).start()

    def update_schedule(self, schedule):
        if schedule.policy not in self._engine.policies:
            raise ParameterError(f"policy {schedule.policy!r} is unknown.")
        self.schedule = schedule

    @property
    def held(self):
        return self.pace.held

    def pause(self):
        self.pace.set(0.0)

    def resume(self, rounds_per_s=None):
        self.pace.set(rounds_per_s)

    def step(self):
        self.pace.step()

    def cancel(self):
        self.cancelled.set()

    def next_event(self, timeout_s=None):
        if self._exhausted:
            raise StopIteration
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self._exhausted = isinstance(event, Finished)
        return event

    def _run(self):
        gamma = 0 if self.request.drafter == "none" else GAMMA
        note = self._engine.info.drafters[self.request.drafter]
        for ahead in self._engine.line:
            self._tell(Waiting(ahead, "32 answers are running, the most at once"))
        self._engine.turn.wait(30)
        self._tell(
            Prefilled(
                len(self.request.prompt_ids),
                0.031,
                self.request.sampling.seed if self.request.sampling.seed is not None else 2**62 + self.number,
                self.request.drafter,
                note,
                gamma,
                self.schedule.policy,
            )
        )
        text, ids, rounds, reason, detail = "", [], 0, "length", "token limit"
        position = sum(token >= FIRST_ID for token in self.request.prompt_ids)  # what a prompt has of the text already
        limit = self.request.sampling.max_new_tokens * (self._engine.patience if gamma else 1)
        pace_s = self._engine.pace_s if gamma or self._engine.plain_pace_s is None else self._engine.plain_pace_s
        started = time.perf_counter()
        while len(ids) < limit:
            if self.cancelled.wait(pace_s):
                reason, detail = "cancelled", "stopped by request"
                break
            if not self.pace.may_go(crowded=False):
                time.sleep(0.005)
                continue
            self.pace.went()
            if self._engine.fail_at == rounds or (self.request.drafter in self._engine.fails and rounds == 2):
                reason, detail = "error", "scripted failure <b>${boom}</b>"
                break
            event, position = self._round(rounds, gamma, position, limit - len(ids))
            rounds += 1
            text += "".join(token.text for token in event.committed)
            ids += [token.id for token in event.committed]
            self._tell(event)
        self._engine.leave(self)
        seconds = max(1e-9, time.perf_counter() - started)
        self._tell(
            Finished(
                reason,
                text,
                "",
                tuple(ids),
                rounds,
                len(ids) / rounds if rounds else 0.0,
                len(ids) / seconds,
                detail,
            )
        )

    def _word(self, position):
        return self._script[self._id(position) % FIRST_ID % len(self._script)]

    def _id(self, position):
        """Of the word at the place; from where this drafter's text parts from the others', the one after it."""
        return FIRST_ID + position + (position >= self._engine.parts.get(self.request.drafter, position + 1))

    def _round(self, index, gamma, position, room):
        schedule = self.schedule
        load = load_for(schedule, self._engine.load())
        upper = min(schedule.l_max, gamma)
        head = self.request.drafter == "dspark"
        confidences = [max(0.05, min(0.99, 0.97 - 0.07 * k - 0.11 * ((index + k) % 3))) for k in range(gamma)]
        length = min(schedule.l_min, upper)
        if head and schedule.policy == "threshold":
            while length < upper and confidences[length] >= schedule.threshold:
                length += 1
            why = (
                f"confidence {confidences[length]:.2f} of draft {length + 1} is below {schedule.threshold:.2f}"
                if length < upper
                else "L_max reached"
            )
        elif head and schedule.policy == "banded":
            length, why = self._banded(schedule, confidences, upper, load)
        else:
            length, why = upper, "fixed at L_max"
        accepted = length if index % 3 == 2 else min(length, (1, 2, 0, 3)[index % 4])
        accepted = min(accepted, max(0, room - 1))
        draft, survival = [], 1.0
        for k in range(length if schedule.stop_early else gamma):
            survival *= confidences[k]
            fate = (
                Fate.UNVERIFIED
                if k >= length
                else Fate.ACCEPTED
                if k < accepted
                else Fate.REJECTED
                if k == accepted
                else Fate.DISCARDED
            )
            right = k < accepted or k >= length
            verified = k < length
            draft.append(
                DraftToken(
                    self._id(position + k) if right else WRONG_ID + k,
                    self._word(position + k) if right else self._word(position + k + 5),
                    0.4 + 0.05 * k,
                    confidences[k] if head else None,
                    survival if head else None,
                    (0.6 if right else 0.02) if verified else None,
                    (1.0 if right else 0.05) if verified else None,
                    0.5 if k <= accepted and verified else None,
                    fate,
                )
            )
        kind = "bonus" if accepted == length else "correction"
        own = NextToken(self._id(position + accepted), self._word(position + accepted), kind)
        committed = tuple(CommittedToken(token.id, token.text) for token in [*draft[:accepted], own])
        event = DecodeRound(
            index,
            Token(1, self._word(position - 1)),
            tuple(draft),
            length,
            why,
            accepted,
            own,
            committed,
            RoundTimings(0.004 if gamma else 0.0, 0.0004, 0.021 + 0.0006 * length),
            load,
            schedule.policy,
            schedule.l_min,
            schedule.l_max,
            schedule.threshold,
            schedule.stop_early,
            schedule.band_low,
            schedule.band_high,
            load.reading(schedule.load_signal) if schedule.policy == "banded" else None,
            inspection=self._inspection(draft, own, length) if self.request.inspect else None,
        )
        return event, position + len(committed)

    def _inspection(self, draft, own, length):
        """Each drafted token among three others; Θ rises to the length that was chosen and falls behind it."""

        def beside(first, target, residual=None):
            others = [
                Candidate(200 + n, self._word(n), 0.2 / (n + 1), 0.1 / (n + 1), target and 0.2 / (n + 2), residual)
                for n in range(3)
            ]
            return (first, *others)

        candidates = []
        for token in draft:
            rejected = token.fate is Fate.REJECTED
            first = Candidate(
                token.id, token.text, 0.05, token.draft_prob, token.target_prob, 0.0 if rejected else None
            )
            row = beside(first, token.target_prob, 0.1 if rejected else None)
            if rejected:
                row += (Candidate(own.id, own.text, 0.01, 0.02, 0.6, 0.7),)
            candidates.append(row)
        after = Candidate(own.id + 1, self._word(own.id - FIRST_ID + 1), None, None, 0.2, None)
        bonus = (Candidate(own.id, own.text, None, None, 0.8, None), after) if own.kind == "bonus" else ()
        throughputs = tuple(30.0 + 2 * n for n in range(length + 1)) + ((28.0 + 2 * length,) if draft[length:] else ())
        return Inspection(tuple(candidates), bonus, throughputs, None, self.request.sampling.temperature)

    @staticmethod
    def _banded(schedule, confidences, upper, load):
        view = DraftView(len(confidences), tuple(confidences), schedule, upper)
        plan = policy_named("banded").plan([view], RoundView(load))[0]
        return plan.verify_len, plan.reason


class FakeEngine:
    def __init__(self, info, pace_s, *, gpu=False, max_active=16):
        self.info = info
        self.pace_s = pace_s
        self.plain_pace_s = None  # of plain decoding, where it shall differ
        self.fail_at = None
        self.max_held_s = 300.0
        self.fails = ()  # drafters whose answers fail after some rounds
        self.parts = {}  # drafter: the place from which its text is another one
        self.patience = 1  # answers are so many times longer than asked: for tests that need one that still runs
        self.line = ()  # how many are ahead of who asks, as told one after the other until `turn` is set
        self.max_tokens = 65_536
        self.turn = threading.Event()
        self.turn.set()
        self.policies = info.policies
        self.load_sensor = FakeSensor(gpu=gpu)
        self.active = []
        self.submitted = []
        self._lock = threading.Lock()
        self._max_active = max_active

    def load(self):
        return replace(self.load_sensor.sample(), occupancy=self.num_active / self._max_active, engine_busy=0.9)

    @property
    def num_active(self):
        with self._lock:
            return len(self.active)

    @property
    def limits(self):
        return Limits(self._max_active)

    def submit(self, request, listener=None):
        with self._lock:
            if len(self.active) >= self._max_active:
                raise ResourceError(f"{len(self.active)} answers are running. Try again in a moment.")
            prompt = "".join(chr(code) for code in request.prompt_ids)
            script = list(HOSTILE) if "hostile" in prompt else _plain_tokens()
            if "echo " in prompt:
                script = [" " + prompt.rsplit("echo ", 1)[1].split()[0]]
            generation = FakeGeneration(self, request, script, len(self.submitted), listener)
            self.active.append(generation)
            self.submitted.append(generation)
        return generation

    def leave(self, generation):
        with self._lock:
            if generation in self.active:
                self.active.remove(generation)


class FakeSession:
    def __init__(self, pace_s=0.05, *, gpu=False, max_active=16, **info):
        self.info = FakeInfo(**info)
        self.engine = FakeEngine(self.info, pace_s, gpu=gpu, max_active=max_active)
        self.requests = []
        self.closed = False

    def request(self, messages, sampling, schedule, drafter):
        text = messages[-1]["content"]
        size = sum(len(message["content"]) for message in messages)
        if size > self.info.max_context:
            raise ParameterError(
                f"The conversation has {size} tokens; the model takes {self.info.max_context}. Start a new chat."
            )
        if drafter not in self.info.drafters:
            raise ParameterError(f"drafter {drafter!r} is unknown.")
        if schedule.policy not in self.info.policies:
            raise ParameterError(f"policy {schedule.policy!r} is unknown.")
        self.requests.append((list(messages), sampling, schedule, drafter))
        return GenerationRequest(tuple(ord(c) for c in text), sampling, schedule, drafter)

    def close(self):
        self.closed = True
