import { GLANCE_MS } from "./store.js";
import { count, fixed, percent, setText } from "./text.js";
import { later, t } from "./words.js";

const NOTES = [later("waits for the model"), later("measuring now"), later("waits for an idle moment")]; // the host's

function widths(bar, parts) {
  const total = parts.reduce((sum, [, value]) => sum + value, 0);
  for (const [name, value] of parts) {
    bar.querySelector(`[data-part="${name}"]`).style.width = total > 0 ? `${(100 * value) / total}%` : "0";
  }
}

export function mountHeadline(root, store, press) {
  const figure = (name) => {
    const card = root.querySelector(`[data-fig="${name}"]`);
    return {
      card, big: card.querySelector(".ds-big"), sub: card.querySelector(".ds-sub"), bar: card.querySelector(".ds-bar"),
    };
  };
  const [now, plain, ratio, tau, counts, time] = ["now", "plain", "ratio", "tau", "counts", "time"].map(figure);
  const again = root.querySelector("[data-press]");
  again.addEventListener("click", () => press());

  store.listen(({ status, figures, recent, recentRounds, running, rounds, recording }) => {
    const base = status?.baseline ?? null;
    setText(plain.big, base ? fixed(base.figures.tokens_per_s, 1) : "–");
    const note = status?.baseline_note ?? NOTES[0];
    setText(plain.sub, [base && t("measured {clock}, {n} {n:token|tokens}", { clock: base.clock, n: base.figures.tokens }), note && t(note)].filter(Boolean).join("; "));
    again.hidden = status?.phase !== "ready";
    again.disabled = note === NOTES[1] || note === NOTES[2];
    const any = figures && rounds.length > 0;
    const shown = any && running ? recent : figures;
    setText(now.card.querySelector(".ds-when"), any && !running ? t("of the answer") : t("now"));
    setText(now.big, any ? fixed(shown.tokens_per_s, 1) : "–");
    setText(now.sub, any ? recording ? t("{label}, {n} {n:token|tokens}", { label: recording.label, n: count(figures.tokens) }) : (running ? t("measured, last {n} {n:round|rounds}", { n: recentRounds }) : t("measured, {n} {n:token|tokens}", { n: count(figures.tokens) })) : t("ask something"));
    const quotient = any && !recording && base && base.figures.tokens_per_s > 0 ? figures.tokens_per_s / base.figures.tokens_per_s : null;
    setText(ratio.big, quotient === null ? "–" : `${fixed(quotient)}×`);
    ratio.card.dataset.tone = quotient === null ? "" : quotient >= 1 ? "up" : "down";
    const same = recording ? t("not against this machine's") : store.prefilled?.num_draft_tokens === 0 ? t("this answer is plain too") : t("against plain decoding");
    const crowd = (status?.active ?? 0) > 1 && running && !recording ? t("{n} answers share the engine", { n: status.active }) : same;
    setText(ratio.sub, crowd);
    setText(tau.big, any ? fixed(figures.tau) : "–");
    setText(tau.sub, any ? t("{n} {n:token|tokens} in {rounds} {rounds:round|rounds}", { n: count(figures.tokens), rounds: count(figures.rounds) }) : t("accepted + 1"));
    setText(counts.big, any ? `${count(figures.drafted)} · ${count(figures.verified)} · ${count(figures.accepted)}` : "–");
    setText(counts.sub, any ? (figures.acceptance_rate === null ? t("nothing was verified") : t("acceptance {rate} of verified, {wasted} wasted", { rate: percent(figures.acceptance_rate), wasted: count(figures.wasted) })) : "\u00a0");
    if (any) widths(counts.bar, [["accepted", figures.accepted], ["wasted", figures.wasted], ["cut", figures.drafted - figures.verified]]);
    const whole = any ? figures.round_s : 0;
    setText(time.big, whole > 0 ? [figures.draft_s, figures.schedule_s, figures.verify_s].map((s) => `${((100 * s) / whole).toFixed(s / whole < 0.095 ? 1 : 0)}`).join(" · ") + " %" : "–");
    setText(time.sub, whole > 0 ? t("{s} s in rounds", { s: fixed(whole, 1) }) : "\u00a0");
    if (any) widths(time.bar, [["draft", figures.draft_s], ["schedule", figures.schedule_s], ["verify", figures.verify_s]]);
    if (!any) for (const part of root.querySelectorAll(".ds-bar i")) part.style.width = "0";
  }, () => GLANCE_MS);
}
