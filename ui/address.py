"""The page's address: which parameters it takes, what each may be, and what becomes of a bad one.

``?tab=explore&policy=prefix&l_max=8`` opens a tab and sets controls; as they change, the address follows
(``ui/static/address.js``). A tab joins in its ``connect``::

    deck.address.add("sweep_top", self.top)               # bounds and choices are the component's own
    deck.address.add("sweep_seed", self.seed, check=...)  # a text with rules of its own: check raises ParameterError
    deck.address.pair("sweep_from", "sweep_to")           # the first must not be above the second

Names are the whole page's: begin yours with the tab's key. The components must be on the page from the start. Scripts
that keep a state of their own use ``own(name, take)`` and ``tell(name, value)`` of ``address.js``. Names that nobody
registered are left as they are: hosts add some of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from dspark_core.errors import ParameterError, shown
from ui.words import LANGUAGES

MAX_TEXT = 2000  # characters of a text in an address
Changes = dict[Any, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One name of the address.

    Attributes:
        name: as it stands in the address.
        component: what it sets: a Slider, Number, Dropdown, Radio, Checkbox, CheckboxGroup or Textbox.
        clipped: a whole number above the slider's end acts as that end, as L_max above γ does.
        follow: whether the address follows the component; else it only loses the value when that has changed.
        check: raises ParameterError for a text, or a name that is not in the list, that the component would take and
            its readers would not.
    """

    name: str
    component: Any
    clipped: bool = False
    follow: bool = True
    check: Callable[[str], object] | None = None

    def default(self, fitted: Mapping[str, Any]) -> Any:
        """Its value where the address says nothing; ``fitted`` is what the open session changes of the component."""
        value = fitted.get("value", self.component.value)
        return "" if value is None else value

    def read(self, text: str, fitted: Mapping[str, Any]) -> Any:
        """The value that ``text`` means. Raises ParameterError, which names what is allowed."""
        part = self.component
        if isinstance(part, gr.Checkbox):
            return self._one_of(text, {"0": False, "1": True})
        if isinstance(part, (gr.Dropdown, gr.Radio, gr.CheckboxGroup)):
            named = fitted.get("choices", part.choices)
            choices = [choice[1] if isinstance(choice, tuple) else choice for choice in named]
            values = {str(choice): choice for choice in choices}
            if isinstance(part, gr.CheckboxGroup) or getattr(part, "multiselect", False):
                return self._some_of(text, values)
            return self._one_of(text, values)
        if isinstance(part, (gr.Slider, gr.Number)):
            return self._number(text, part, fitted.get("maximum", part.maximum))
        return self._checked(text)

    def _typed(self, name: str) -> str:
        try:
            return self._checked(name)
        except ParameterError as error:
            raise ParameterError(f"{self.name}: {error}") from error

    def _checked(self, text: str) -> str:
        if len(text) > MAX_TEXT:
            raise ParameterError(f"{self.name} has {len(text):,} characters; an address may give {MAX_TEXT:,}.")
        if self.check is not None:
            self.check(text)
        return text

    def _one_of(self, text: str, values: dict[str, Any]) -> Any:
        if text not in values:
            raise ParameterError(f"{self.name} is {shown(text)}; it must be one of: {', '.join(values)}.")
        return values[text]

    def _some_of(self, text: str, values: dict[str, Any]) -> list[Any]:
        """Names with commas between them."""
        part, names = self.component, list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        most = getattr(part, "max_choices", None) or len(values)
        if not 1 <= len(names) <= most:
            raise ParameterError(f"{self.name} is {shown(text)}; it must be 1 to {most} names with commas between.")
        if getattr(part, "allow_custom_value", False):
            return [name if name in values else self._typed(name) for name in names]
        return [self._one_of(name, values) for name in names]

    def _number(self, text: str, part: Any, high: float | None) -> float:
        low = part.minimum
        # A Number's step is only what its arrows do.
        whole = part.precision == 0 if isinstance(part, gr.Number) else float(part.step or 0.1).is_integer()
        bounds = f"{'a whole number' if whole else 'a number'}{_between(low, high)}"
        try:
            value = float(text) if len(text) <= 40 and text.isascii() and "_" not in text else math.nan
        except ValueError:
            value = math.nan
        if self.clipped and high is not None and value > high:
            value = float(high) if math.isfinite(value) else math.nan
        fits = math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)
        if not fits or (whole and not value.is_integer()):
            raise ParameterError(f"{self.name} is {shown(text)}; it must be {bounds}.")
        return int(value) if whole else value


def _between(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    return f" from {low if low is not None else 'any'} to {high if high is not None else 'any'}"


@dataclass(frozen=True, slots=True)
class Address:
    """The parameters of one page.

    Attributes:
        tabs: keys of the page's tabs.
        parameters: by name, in the order in which they were added.
        pairs: names of which the first must not be above the second.
    """

    tabs: tuple[str, ...]
    parameters: dict[str, Parameter] = field(default_factory=dict)
    pairs: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, component: Any, **rest: Any) -> None:
        """Let the address set ``component``; ``rest``: see `Parameter`."""
        if name in self.parameters or name in ("tab", "lang") or name.startswith("__"):
            raise AssertionError(f"The address has a parameter {name!r} already, or Gradio has.")
        self.parameters[name] = Parameter(name, component, **rest)

    def pair(self, low: str, high: str) -> None:
        """Refuse ``low`` above ``high``."""
        self.pairs.append((low, high))

    @property
    def components(self) -> list[Any]:
        """What the address may set."""
        return [parameter.component for parameter in self.parameters.values()]

    def read(
        self, given: Mapping[str, str] | Iterable[tuple[str, str]], fitted: Changes
    ) -> tuple[dict[str, Any], list[str]]:
        """The values that ``given`` has and that hold, and what is wrong with the others."""
        values: dict[str, Any] = {}
        query, problems = self._once(given.items() if isinstance(given, Mapping) else given)
        for name, known in (("tab", self.tabs), ("lang", LANGUAGES)):
            if (text := query.get(name)) is not None and text not in known:
                problems.append(f"{name} is {shown(text)}; it must be one of: {', '.join(known)}.")
        for name, parameter in self.parameters.items():
            if (text := query.get(name)) is None:
                continue
            try:
                values[name] = parameter.read(text, _update(fitted, parameter))
            except ParameterError as error:
                problems.append(str(error))
        return values, [*problems, *self._unpaired(values, fitted)]

    def _once(self, given: Iterable[tuple[str, str]]) -> tuple[dict[str, str], list[str]]:
        """Each name with its first value, as the page's scripts take it, and what is said of names that come again."""
        query: dict[str, str] = {}
        again: dict[str, None] = {}
        for name, text in given:
            if name in query and (name in self.parameters or name in ("tab", "lang")):
                again[name] = None
            query.setdefault(name, text)
        return query, [f"{name} stands there more than once; the first counts." for name in again]

    def _unpaired(self, values: dict[str, Any], fitted: Changes) -> Iterable[str]:
        """Strike out pairs that contradict each other, and say so."""
        defaults = self.defaults(fitted)
        for low, high in self.pairs:
            small, large = (values.get(name, defaults[name]) for name in (low, high))
            if small > large and (low in values or high in values):
                values.pop(low, None)
                values.pop(high, None)
                yield f"{low} is {shown(small)} and {high} is {shown(large)}; {low} must not be above {high}."

    def defaults(self, fitted: Changes) -> dict[str, Any]:
        """Values where the address says nothing."""
        return {name: parameter.default(_update(fitted, parameter)) for name, parameter in self.parameters.items()}

    def changes(self, values: Mapping[str, Any], first: Changes) -> Changes:
        """The updates ``first``, with ``values`` of the address in them."""
        named = {self.parameters[name].component: value for name, value in values.items()}
        return {**first, **{part: gr.update(**{**_plain(first.get(part)), "value": named[part]}) for part in named}}

    def message(self, values: Mapping[str, Any], fitted: Changes) -> dict[str, Any]:
        """What the page's script gets to follow the controls."""
        return {
            "kind": "address",
            "defaults": self.defaults(fitted),
            "values": dict(values),
            "once": [parameter.name for parameter in self.parameters.values() if not parameter.follow],
        }

    def follow(self, quiet: dict[str, Any]) -> None:
        """Tell the page's script, in the browser alone, what the controls say whenever one changes."""
        names = list(self.parameters)
        tell = "(window.dsparkPage ??= {inbox: []}).inbox.push"
        gr.on(
            [parameter.component.change for parameter in self.parameters.values()],
            None,
            self.components,
            None,
            js=f"(...values) => {{ {tell}(['controls', {names!r}, values]); return []; }}",
            **quiet,
        )


def _plain(update: Any) -> dict[str, Any]:
    return {name: value for name, value in (update or {}).items() if name != "__type__"}


def _update(fitted: Changes, parameter: Parameter) -> dict[str, Any]:
    return _plain(fitted.get(parameter.component))
