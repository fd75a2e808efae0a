// Three live charts. While an answer runs they are drawn on a canvas; at rest, and where the pointer is, by Plotly, each
// made once and then updated in place (zoom and hover survive).
import { fateColour, markOf, variable } from "./fates.js";
import { LivePlot } from "./live_plot.js";
import { loadNote, signalWords } from "./load.js";
import { GLANCE_MS } from "./store.js";
import { fixed, percent, setText } from "./text.js";
import { t } from "./words.js";

const WINDOW = 60; // rounds in sight while an answer runs
const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false };
const SYMBOLS = { accepted: "circle", rejected: "x", discarded: "circle-open", unverified: "diamond-open" };

const plotly = () =>
  new Promise((resolve) => {
    const wait = () => (window.Plotly ? resolve(window.Plotly) : setTimeout(wait, 50));
    wait();
  });

function look() {
  return {
    ink: variable("--body-text-color"), muted: variable("--body-text-color-subdued"), line: variable("--ds-line"),
    accent: variable("--ds-accent"), band: variable("--ds-band"), survival: variable("--ds-survival"),
    panel: variable("--block-background-fill"), band2: variable("--ds-band-line"), font: variable("--font"),
    fate: Object.fromEntries([...Object.keys(SYMBOLS), "correction"].map((fate) => [fate, fateColour(fate)])),
  };
}

function layout(colours, { x, y, ...rest }) {
  const axis = {
    gridcolor: colours.line, zerolinecolor: colours.line, linecolor: colours.line, tickcolor: colours.line,
    tickfont: { size: 11 }, title: { font: { size: 11 }, standoff: 6 },
    tickangle: 0, ticklabeloverflow: "allow", // measuring labels, and margins by them, takes half of a drawing's time
  };
  return {
    height: 200,
    margin: { l: 44, r: 12, t: 26, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colours.font, size: 12, color: colours.muted },
    hoverlabel: { bgcolor: colours.panel, bordercolor: colours.line, font: { color: colours.ink, size: 12 } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: window.innerWidth < 480 ? 10 : 11 }, itemwidth: 30 },
    showlegend: true,
    xaxis: { ...axis, ...x, title: { ...axis.title, text: x.name } },
    yaxis: { ...axis, ...y, title: { ...axis.title, text: y.name } },
    ...rest,
  };
}

const gammaOf = (store) => store.prefilled?.num_draft_tokens || store.status?.info?.[3] || 7;

function lastRound(rounds) {
  for (let i = rounds.length - 1; i >= 0; i -= 1) if (rounds[i]?.draft.length) return rounds[i];
  return null;
}

function blockFigure(store, colours) {
  const gamma = gammaOf(store);
  const round = lastRound(store.rounds);
  const narrow = window.innerWidth < 480;
  const draft = round?.draft ?? [];
  const xs = draft.map((_, k) => k + 1);
  const confident = draft.some((token) => token.confidence !== null);
  const threshold = round?.policy === "threshold" ? round.threshold : null;
  const shapes = [];
  const annotations = [];
  const end = round?.stopEarly ? gamma : draft.length;
  if (round && round.verifyLen < end) {
    shapes.push({ type: "rect", x0: round.verifyLen + 0.5, x1: end + 0.5, yref: "paper", y0: 0, y1: 1, fillcolor: colours.band, line: { width: 0 }, layer: "below" });
    annotations.push({ x: (round.verifyLen + end + 1) / 2, yref: "paper", y: 0.98, yanchor: "top", text: round.stopEarly ? t("not drafted") : t("not verified"), showarrow: false, bgcolor: colours.panel, borderpad: 0, font: { size: 11, color: colours.muted } });
  }
  if (round && !confident) annotations.push({ xref: "paper", yref: "paper", x: 0.5, y: 0.95, text: t("this drafter has no confidence head; shown: its probability"), showarrow: false, font: { size: 11, color: colours.muted } });
  const value = confident ? (token) => token.confidence : (token) => token.draftProb;
  const traces = [
    {
      name: t("survival a"), x: xs, y: draft.map((token) => token.survival), mode: "lines", line: { color: colours.survival, width: 2, dash: "dot" },
      hovertemplate: `${t("survival")} %{y:.2f}<extra></extra>`, visible: confident || !round,
    },
    {
      name: confident || !round ? t("confidence c") : t("draft probability"), x: xs, y: draft.map(value), mode: "lines+markers",
      line: { color: colours.accent, width: 2 },
      marker: { size: 10, symbol: draft.map((token) => SYMBOLS[token.fate]), color: draft.map((token) => colours.fate[token.fate]), line: { width: 2, color: draft.map((token) => colours.fate[token.fate]) } },
      customdata: draft.map((token) => `${markOf(token.fate)} ${t(token.fate)}`),
      hovertemplate: `${t("position")} %{x}: %{y:.2f}, %{customdata}<extra></extra>`,
    },
  ];
  if (threshold !== null && confident) {
    traces.push({
      name: narrow ? t("threshold") : t("threshold {value} on c", { value: fixed(threshold) }), x: [0.5, gamma + 0.5], y: [threshold, threshold], mode: "lines",
      line: { color: colours.ink, width: 1.5, dash: "dash" }, hoverinfo: "skip",
    });
  }
  if (round?.policy === "banded" && confident) {
    const edges = [[round.bandLow, t("lower band")], [round.bandHigh, t("upper band")]].filter(([value]) => value !== null);
    edges.forEach(([value, which], i) => traces.push({
      name: narrow ? t("bands") : t("bands {edges} on c", { edges: edges.map(([edge]) => fixed(edge)).join("–") }), x: [0.5, gamma + 0.5], y: [value, value], mode: "lines", showlegend: i === 0,
      line: { color: colours.ink, width: 1.5, dash: "dash" }, hovertemplate: `${which} %{y:.2f}<extra></extra>`,
    }));
    if (round.signal?.value != null) traces.push({
      name: narrow ? t("load") : t("load {value} ({name}) on a", { value: fixed(round.signal.value), name: round.signal.name }), x: [0.5, gamma + 0.5], y: [round.signal.value, round.signal.value], mode: "lines",
      line: { color: colours.survival, width: 1.5, dash: "dash" }, hovertemplate: `${t("load")} %{y:.2f}<extra></extra>`,
    });
  }
  const words = round
    ? [
      `${t("Round {n}", { n: round.index + 1 })}: ${confident ? t("confidence") : t("draft probability")} ${draft.map((token) => `${fixed(value(token))} ${t(token.fate)}`).join(", ")}`,
      t("verified {n}", { n: round.verifyLen }),
      threshold !== null && t("threshold {value}", { value: fixed(threshold) }),
      round.policy === "banded" && t("bands {low} to {high}, load {value} ({name})", { low: fixed(round.bandLow), high: fixed(round.bandHigh), value: fixed(round.signal?.value), name: round.signal?.name ?? t("none") }),
    ].filter(Boolean).join("; ")
    : t("No round yet");
  return { traces, words, layout: layout(colours, { x: { name: t("position in the block"), range: [0.5, gamma + 0.5], dtick: 1, showgrid: false }, y: { range: [0, 1.05], tickvals: [0, 0.25, 0.5, 0.75, 1] }, shapes, annotations, height: traces.length > 3 ? 236 : 200 }) };
}

const roundTraces = (colours, many) => [
  { name: "L_max", x: [], y: [], mode: "lines", line: { width: 1, color: colours.band2, shape: "hv" }, showlegend: false, hoverinfo: "skip" },
  { name: t("bounds"), x: [], y: [], mode: "lines", line: { width: 1, color: colours.band2, shape: "hv" }, fill: "tonexty", fillcolor: colours.band, hovertemplate: "L_min %{y}<extra></extra>" },
  { name: t("accepted"), x: [], y: [], type: "bar", marker: { color: colours.fate.accepted, opacity: many ? 1 : 0.75, line: { width: 0 } }, width: many ? 1 : 0.62, hovertemplate: `${t("round")} %{x}: ${t("accepted")} %{y}<extra></extra>` },
  { name: t("chosen ℓ"), x: [], y: [], mode: many ? "lines" : "lines+markers", line: { width: many ? 1.25 : 2, color: colours.accent, shape: "hvh" }, marker: { size: 4 }, hovertemplate: `${t("round")} %{x}: ℓ %{y}<extra></extra>` },
];

function roundColumns(rounds, gamma) {
  const x = rounds.map((round) => round.index + 1);
  const cap = (round, value) => Math.min(value, round.stopEarly ? gamma : round.draft.length); // what could be verified
  return {
    x: [x, x, x, x],
    y: [
      rounds.map((round) => cap(round, round.lMax)), rounds.map((round) => cap(round, round.lMin)),
      rounds.map((round) => round.accepted), rounds.map((round) => round.verifyLen),
    ],
  };
}

function roundsLayout(store, colours) {
  const gamma = gammaOf(store);
  const still = store.rounds.length === 0 ? { range: [0.4, 12.6] } : { autorange: true };
  return layout(colours, {
    x: { name: t("round"), showgrid: false, ...still },
    y: { range: [0, gamma + 0.6], dtick: gamma > 8 ? 2 : 1 },
    bargap: 0.3,
    uirevision: store.answer,
  });
}

function loadFigure(store, colours) {
  const samples = store.loads;
  const end = samples.at(-1)?.t ?? 0;
  const xs = samples.map(({ t }) => t - end);
  const traces = [
    { name: t("utilisation"), x: xs, y: samples.map(({ load }) => (load.utilisation === null ? null : load.utilisation * 100)), mode: "lines", line: { color: colours.accent, width: 2 }, fill: "tozeroy", fillcolor: colours.band, hovertemplate: `%{y:.0f} %<extra>${t("utilisation")}</extra>` },
    { name: t("memory"), x: xs, y: samples.map(({ load }) => (load.memoryTotal ? (100 * load.memoryUsed) / load.memoryTotal : null)), mode: "lines", line: { color: colours.survival, width: 2, dash: "dot" }, hovertemplate: `%{y:.0f} %<extra>${t("memory")}</extra>` },
  ];
  const judged = samples.findLast(({ signal }) => signal?.value != null)?.signal;
  if (judged) traces.push({ name: t("signal: {name}", judged), x: xs, y: samples.map(({ signal }) => (signal?.value == null ? null : signal.value * 100)), customdata: samples.map(({ signal }) => signal?.name ?? ""), mode: "lines", line: { color: colours.ink, width: 1.5, shape: "hv" }, hovertemplate: "%{y:.0f} %<extra>%{customdata}</extra>" });
  const powered = samples.some(({ load }) => load.power !== null);
  if (powered) traces.push({ name: t("power, W"), x: xs, y: samples.map(({ load }) => load.power), mode: "lines", yaxis: "y2", line: { color: colours.fate.correction, width: 2, dash: "dash" }, hovertemplate: `%{y:.0f} W<extra>${t("power")}</extra>` });
  const last = samples.at(-1)?.load;
  const words = last ? `${last.source}: ${t("utilisation")} ${percent(last.utilisation)}, ${t("memory")} ${last.memoryTotal ? percent(last.memoryUsed / last.memoryTotal) : "–"}${last.power === null ? "" : `, ${Math.round(last.power)} W`}` : t("No sample yet");
  const second = powered ? { yaxis2: { overlaying: "y", side: "right", rangemode: "tozero", showgrid: false, tickfont: { size: 11 }, automargin: true } } : {};
  return { traces, words, layout: layout(colours, { x: { name: t("seconds ago"), range: [Math.min(-60, xs[0] ?? -60), 0], showgrid: false }, y: { range: [0, 105], ticksuffix: " %", tickvals: [0, 50, 100] }, ...second, height: traces.length > 3 ? 236 : 200 }) };
}

// All rounds, or while an answer runs the latest ones.
function roundsFigure(store, colours) {
  const shown = store.rounds.slice(store.running ? -WINDOW : 0).filter(Boolean);
  const columns = roundColumns(shown, store.prefilled?.num_draft_tokens ?? 0);
  const traces = roundTraces(colours, shown.length > 80).map((trace, i) => ({ ...trace, x: columns.x[i], y: columns.y[i] }));
  const last = store.rounds.at(-1);
  const words = last
    ? t("{n} {n:round|rounds}; the last verified {verifyLen} and accepted {accepted}, bounds {lMin} to {lMax}. The table of rounds has all of them.", { ...last, n: store.rounds.length })
    : t("No round yet");
  return { traces, words, layout: roundsLayout(store, colours) };
}

// A chart draws when its key changed and it is in sight. Plotly is slow where there is no GPU: each pass is followed
// by a rest of several times its own cost, so that drawing never crowds out the browser or, on one machine, the model.
const REST_MS = 250;
const REST_FACTOR = 20;
const LONGEST_REST_MS = 2000;

class Chart {
  constructor(box, key, figure) {
    this.box = box;
    this.live = new LivePlot(box);
    this.key = key;
    this.figure = figure;
    this.drawn = null;
  }

  draw(Plotly, store, colours) {
    const figure = this.figure(store, colours);
    const quick = this.quick(store);
    if (quick) this.live.draw(figure, colours.panel);
    else {
      Plotly.react(this.box, figure.traces, figure.layout, CONFIG);
      this.live.hide();
    }
    this.box.setAttribute("aria-label", figure.words);
    return quick;
  }

  // Who points at a chart reads its values, which Plotly tells.
  quick(store) {
    return store.running && !this.live.frame.matches(":hover");
  }
}

export function mountCharts(root, store) {
  const note = root.querySelector("[data-load-note]");
  const signal = root.querySelector("[data-load-signal]");
  let colours = null;
  let theme = 0;
  const chart = (name, key, figure) => new Chart(root.querySelector(`[data-plot="${name}"]`), key, figure);
  const charts = [
    chart("block", () => `${store.epoch}:${store.rounds.length}:${gammaOf(store)}`, blockFigure),
    chart("rounds", () => `${store.epoch}:${store.running}:${store.rounds.length}:${gammaOf(store)}`, roundsFigure),
    chart("load", () => `${store.recording ? store.epoch : 0}:${store.loads.at(-1)?.t ?? 0}`, loadFigure),
  ];

  plotly().then((Plotly) => {
    const inSight = new Set();
    let timer = null;
    let rested = 0;
    const pass = () => {
      clearTimeout(timer);
      timer = null;
      const begun = performance.now();
      let quick = true;
      colours ??= look();
      for (const one of charts) {
        const key = `${theme}:${one.quick(store)}:${one.key()}`;
        if (key === one.drawn || !inSight.has(one.live.frame)) continue;
        quick = one.draw(Plotly, store, colours) && quick;
        one.drawn = key;
      }
      const cost = performance.now() - begun;
      const rest = quick ? 0 : Math.min(LONGEST_REST_MS, Math.max(REST_MS, (store.running ? REST_FACTOR : 1) * cost));
      rested = performance.now() + rest;
    };
    // What is quick is drawn at once, in the frame that draws the rest: a frame of its own costs as much as the drawing.
    const request = () => {
      const wait = rested - performance.now();
      if (wait <= 0 && charts.every((one) => one.quick(store))) pass();
      else timer ??= setTimeout(pass, Math.max(0, wait));
    };
    const watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) inSight.add(target);
        else inSight.delete(target);
      }
      request();
    }, { rootMargin: "120px" });
    for (const { live } of charts) {
      watcher.observe(live.frame);
      for (const event of ["pointerenter", "pointerleave"]) live.frame.addEventListener(event, request);
    }
    store.listen(() => {
      setText(note, loadNote(store));
      setText(signal, signalWords(store));
      request();
    }, () => GLANCE_MS);
    new MutationObserver(() => {
      colours = null;
      theme += 1;
      rested = 0;
      request();
    }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  });
}
