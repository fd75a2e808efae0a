import { count, fixed, percent, setText } from "./text.js";

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
    const note = status?.baseline_note ?? "waits for the model";
    setText(plain.sub, base ? `measured ${base.clock}, ${base.figures.tokens} tokens${note ? `; ${note}` : ""}` : note);
    again.hidden = status?.phase !== "ready";
    again.disabled = note === "measuring now" || note === "waits for an idle moment";
    const any = figures && rounds.length > 0;
    const shown = any && running ? recent : figures;
    setText(now.card.querySelector(".ds-when"), any && !running ? "of the answer" : "now");
    setText(now.big, any ? fixed(shown.tokens_per_s, 1) : "–");
    setText(now.sub, any ? recording ? `${recording.label}, ${count(figures.tokens)} tokens` : (running ? `measured, last ${recentRounds} rounds` : `measured, ${count(figures.tokens)} tokens`) : "ask something");
    const quotient = any && !recording && base && base.figures.tokens_per_s > 0 ? figures.tokens_per_s / base.figures.tokens_per_s : null;
    setText(ratio.big, quotient === null ? "–" : `${fixed(quotient)}×`);
    ratio.card.dataset.tone = quotient === null ? "" : quotient >= 1 ? "up" : "down";
    const same = recording ? "not against this machine's" : store.prefilled?.num_draft_tokens === 0 ? "this answer is plain too" : "against plain decoding";
    const crowd = (status?.active ?? 0) > 1 && running && !recording ? `${status.active} answers share the engine` : same;
    setText(ratio.sub, crowd);
    setText(tau.big, any ? fixed(figures.tau) : "–");
    setText(tau.sub, any ? `${count(figures.tokens)} tokens in ${count(figures.rounds)} rounds` : "accepted + 1");
    setText(counts.big, any ? `${count(figures.drafted)} · ${count(figures.verified)} · ${count(figures.accepted)}` : "–");
    setText(counts.sub, any ? (figures.acceptance_rate === null ? "nothing was verified" : `acceptance ${percent(figures.acceptance_rate)} of verified, ${count(figures.wasted)} wasted`) : "\u00a0");
    if (any) widths(counts.bar, [["accepted", figures.accepted], ["wasted", figures.wasted], ["cut", figures.drafted - figures.verified]]);
    const whole = any ? figures.round_s : 0;
    setText(time.big, whole > 0 ? [figures.draft_s, figures.schedule_s, figures.verify_s].map((s) => `${((100 * s) / whole).toFixed(s / whole < 0.095 ? 1 : 0)}`).join(" · ") + " %" : "–");
    setText(time.sub, whole > 0 ? `${fixed(whole, 1)} s in rounds` : "\u00a0");
    if (any) widths(time.bar, [["draft", figures.draft_s], ["schedule", figures.schedule_s], ["verify", figures.verify_s]]);
    if (!any) for (const part of root.querySelectorAll(".ds-bar i")) part.style.width = "0";
  });
}
