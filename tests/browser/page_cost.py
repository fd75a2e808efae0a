"""What a page that is open in a browser costs the engine, on this machine: ``python -m tests.browser.page_cost``.

Each pair answers one request twice: once with the page open in Chromium and asking, once by the engine alone with no
page open; who is first alternates. Speed is the engine's own: tokens over the time between its events *prefilled* and
*finished*, so what the page takes between rounds counts too. Of the page itself it tells the drawings a second, the
long tasks of the browser after loading, and the heap of the browser tab before and after a long answer.

Speeds change with whatever else the machine does; the CPU time that the page takes does so much less. It is counted
between the same two events, for the server's threads beside the engine's and for each kind of Chromium's processes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import threading
import time
from typing import Any

from dspark_core.engine import Generation
from dspark_core.events import Event, Finished, Prefilled
from tests.browser.conftest import CHROMIUM_FLAGS
from tests.browser.cpu import cpu_s, cpu_since
from tests.ui.pages import served
from ui.settings import Settings

WATCH = """
window.longTasks = [];
window.drawn = 0;
new PerformanceObserver((list) => {
  for (const { startTime, duration } of list.getEntries()) window.longTasks.push([startTime, Math.round(duration)]);
}).observe({ type: "longtask", buffered: true });
"""
PROMPTS = ("Why is the sky blue?", "Write a short story about a lighthouse keeper.", "How do I bake bread?")


class Watched:
    """A clock beside what generations hear: the request of every answer, and how fast it was answered."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.speeds: list[float] = []
        self.begun = threading.Event()  # an answer has begun; whoever waits for it clears it before
        self._ended = threading.Condition()
        self._began_s: dict[int, float] = {}
        hear = Generation._hear

        def timed(generation: Generation, event: Event) -> None:
            hear(generation, event)
            if isinstance(event, Prefilled):
                self._began_s[id(generation)] = time.perf_counter()
                self.begun.set()
            if isinstance(event, Finished):
                self._end(generation, event)

        Generation._hear = timed  # type: ignore[method-assign]

    def _end(self, generation: Generation, event: Finished) -> None:
        took_s = time.perf_counter() - self._began_s.pop(id(generation))
        if generation.request.drafter == "none":
            return  # the page's own measurement of plain decoding
        with self._ended:
            self.requests.append(generation.request)
            self.speeds.append(len(event.token_ids) / took_s)
            self._ended.notify_all()

    def speed(self, number: int) -> float:
        """The speed of the answer of that number, once it has ended."""
        with self._ended:
            if not self._ended.wait_for(lambda: len(self.speeds) > number, timeout=600):
                raise TimeoutError("An answer did not end within ten minutes.")
            return self.speeds[number]


def _page(browser: Any, address: str) -> Any:
    page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_selector("#ds-send:enabled", timeout=300_000)
    page.wait_for_function("dsparkPage.store.status?.baseline?.figures", timeout=300_000)
    page.evaluate("dsparkPage.store.listen(() => { window.drawn += 1; })")
    page.wait_for_timeout(3000)
    return page


def _asked(page: Any, watched: Watched, prompt: str) -> dict[str, Any]:
    """Ask on the page; what the engine and the browser measured meanwhile."""
    number = len(watched.speeds)
    before = page.evaluate("[performance.now(), window.drawn]")
    page.fill("#ds-prompt textarea", prompt)
    watched.begun.clear()
    page.keyboard.press("Enter")
    watched.begun.wait(timeout=60)
    cpu, begun, drawn_before = cpu_s(), time.perf_counter(), page.evaluate("window.drawn")
    speed = watched.speed(number)
    cpu = cpu_since(cpu)
    took_s = time.perf_counter() - begun
    updates = max(1, page.evaluate("window.drawn") - drawn_before)
    page.wait_for_function("dsparkPage.store.finish", timeout=120_000)
    now, drawn = page.evaluate("[performance.now(), window.drawn]")
    tasks = page.evaluate(
        f"window.longTasks.filter(([start]) => start >= {before[0]}).map(([, took]) => Math.round(took))"
    )
    return {
        "tokens_per_s": speed,
        "drawings_per_s": (drawn - before[1]) / (now - before[0]) * 1000,
        "long_tasks_ms": sorted(tasks, reverse=True)[:5],
        "updates_per_s": round(updates / took_s, 2),
        "cpu_ms_per_s": round(sum(cpu.values()) / took_s * 1000, 1),
        "cpu_ms_per_update": round(sum(cpu.values()) / updates * 1000, 1),
        "cpu_ms_per_s_by": {kind: round(taken / took_s * 1000, 1) for kind, taken in cpu.items() if taken},
    }


def measure(pairs: int, tokens: int, long_tokens: int) -> dict[str, Any]:
    """The figures, on the embedded model and this machine's processor."""
    from playwright.sync_api import sync_playwright

    session = Settings(device="cpu").open_session(lambda *_: None)
    watched = Watched()
    rows: list[dict[str, Any]] = []
    with served(lambda _: session, "smollm2-135m") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(CHROMIUM_FLAGS))
        requests = []
        for prompt in PROMPTS:  # a warm-up, which also makes the requests: each the first of its page's conversation
            page = _page(browser, f"{address}?max_tokens={tokens}")
            _asked(page, watched, prompt)
            requests.append(watched.requests[-1])
            page.context.close()
        for pair in range(pairs):
            row: dict[str, Any] = {}
            for side in ("page", "alone") if pair % 2 else ("alone", "page"):
                if side == "page":
                    page = _page(browser, f"{address}?max_tokens={tokens}")
                    row["page"] = _asked(page, watched, PROMPTS[pair % len(PROMPTS)])
                    page.context.close()
                    if watched.requests[-1].prompt_ids != requests[pair % len(PROMPTS)].prompt_ids:
                        raise RuntimeError("The page asked something else than is compared with it.")
                else:
                    time.sleep(3)
                    number = len(watched.speeds)
                    for _ in session.engine.submit(requests[pair % len(PROMPTS)]):
                        pass
                    row["alone"] = watched.speed(number)
            row["ratio"] = row["page"]["tokens_per_s"] / row["alone"]
            rows.append(row)
            sys.stdout.write(f"{json.dumps(row)}\n")
            sys.stdout.flush()
        page = _page(browser, f"{address}?max_tokens={long_tokens}")
        heap = [page.evaluate("performance.memory.usedJSHeapSize")]
        long = _asked(page, watched, "Write a very long story about a lighthouse keeper, with many chapters.")
        heap.append(page.evaluate("performance.memory.usedJSHeapSize"))
        long["tokens"] = page.evaluate("dsparkPage.store.figures.tokens")
        browser.close()
    ratios = sorted(row["ratio"] for row in rows)
    return {
        "measured": time.strftime("%Y-%m-%d"),
        "device": session.info.device_label,
        "ratio_median": statistics.median(ratios),
        "ratios": ratios,
        "drawings_per_s_median": statistics.median(row["page"]["drawings_per_s"] for row in rows),
        "updates_per_s_median": statistics.median(row["page"]["updates_per_s"] for row in rows),
        "cpu_ms_per_s_median": statistics.median(row["page"]["cpu_ms_per_s"] for row in rows),
        "cpu_ms_per_update_median": statistics.median(row["page"]["cpu_ms_per_update"] for row in rows),
        "longest_task_ms": max((took for row in rows for took in row["page"]["long_tasks_ms"]), default=0),
        "long_answer": long,
        "heap_mb": [round(size / 1e6, 1) for size in heap],
    }


def main() -> None:
    """Measure and print one JSON line at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12, help="pairs of answers (default 12)")
    parser.add_argument("--max-new-tokens", type=int, default=128, help="tokens of each (default 128)")
    parser.add_argument("--long", type=int, default=2000, help="tokens of the long answer (default 2,000)")
    options = parser.parse_args()
    figures = measure(options.pairs, options.max_new_tokens, options.long)
    sys.stdout.write(f"{json.dumps(figures)}\n")


if __name__ == "__main__":
    main()
