"""A page whose machine is measured while it is open: what may be chosen grows, what is chosen stays."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.browser.conftest import choose, open_tab, set_number, shows, until
from tests.ui.fake_session import FakeSession

pytestmark = pytest.mark.browser
TIMES = tuple((tokens, 0.02 + 0.0008 * tokens) for tokens in (1, 2, 4, 8))


class Measured(FakeSession):
    """Its step times come when ``go_on`` is set."""

    def __init__(self):
        super().__init__(0.0)
        self.go_on = threading.Event()

    def measure_steps(self, budget_s, progress):
        progress("Measuring step times: 0:20 left", 0.1)
        self.go_on.wait(budget_s)
        self.info = replace(
            self.info, policies=(*self.info.policies, "prefix"), step_times=TIMES, step_curve="profiled: scripted"
        )
        self.engine.info = self.info
        return True


def test_prefix_can_be_chosen_once_the_machine_is_measured_and_nothing_else_changes(visit, serve):
    session = Measured()
    page = visit(serve(lambda _: session, "fake-target", 60.0) + "?l_max=3")
    shows(page, ".ds-curve", "profile follows")
    tip = "document.querySelector('.ds-curve').dataset.tip"
    assert until(lambda: "0:20 left" in page.evaluate(tip))
    choose(page, "#ds-policy", "banded")
    set_number(page, "#ds-l-min", 2)
    session.go_on.set()
    shows(page, ".ds-curve", "profiled")
    assert until(lambda: "scripted" in page.evaluate(tip))
    assert until(lambda: offers(page, "prefix"))
    assert page.input_value("#ds-policy input") == "banded"
    assert page.input_value("#ds-l-min input[type=number]") == "2"
    assert page.input_value("#ds-l-max input[type=number]") == "3"
    choose(page, "#ds-policy", "prefix")
    assert until(lambda: "policy=prefix" in page.evaluate("location.search"))
    open_tab(page, "load")
    page.wait_for_function("window.dsparkPage.store.load.machine?.curve.length === 4")


def offers(page, policy):
    page.click("#ds-policy input")
    page.wait_for_selector("[role=option]")
    names = page.locator("[role=option]").all_inner_texts()
    page.click("#ds-prompt textarea")  # the list closes
    return any(policy in name for name in names)
