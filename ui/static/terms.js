// One definition for each term, wherever it shows.
import { make } from "./text.js";
import { later, t } from "./words.js";

export const TERMS = {
  anchor: [later("anchor"), later("x₀, the last token that stands already. Drafting starts from it, and the verifying pass begins with it.")],
  raw: [later("confidence c, raw"), later("What the drafter itself says of x_k, from its confidence head and from how sure its law is: an estimate of the chance that x_k is accepted if all before it are. Known before x_k is drawn.")],
  calibrated: [later("confidence c"), later("The c_k that counts. Where a calibration is in force, the raw confidence's logit is divided by a temperature fitted to what the target did accept; without one it is the raw confidence.")],
  survival: [later("survival a"), later("a_k = c_1 · … · c_k: the estimated chance that all drafts up to x_k are accepted.")],
  draftProb: [later("draft probability"), later("p_draft(x_k): the probability of the token under the law that it was drawn from. Under greedy decoding: the drafter's at temperature 1.")],
  targetProb: [later("target probability"), later("p_target(x_k): the probability of the token under the target's own law after the same text. Under greedy decoding: the target's at temperature 1.")],
  acceptProb: [later("acceptance probability"), later("min(1, p_target / p_draft). Under greedy decoding: 1 if the token is the target's most likely one, else 0.")],
  uniform: [later("uniform drawn"), later("A random number from 0 to 1. The draft is accepted if it is below the acceptance probability. None is drawn where that is 0 or 1, or where an earlier draft has failed.")],
  verdict: [later("verdict"), later("What became of the draft; the same marks and colours as in the chat.")],
  base: [later("base"), later("The drafter's law before the sequential head: it does not know the drafts before this one. Cut to the same candidates as the corrected law.")],
  corrected: [later("corrected"), later("The law that x_k was drawn from: base logits plus the sequential head's bias, which knows the draft before, and the copy head's, where the drafter has one. For a drafter without such heads it is simply its law.")],
  change: [later("change"), later("Corrected minus base: what the sequential head and the copy head did to this token.")],
  target: [later("target"), later("The target's law at this position. Nothing stands here where the target did not verify.")],
  residual: [later("residual"), later("max(0, p_target − p_draft), divided by its sum: what the draft law had too little of. After a rejection the correction is drawn from it, which makes the text follow the target's law exactly. Under greedy decoding it is the target's choice alone.")],
  theta: [later("Θ"), later("Expected tokens a second of the whole pass if it ended here: the expected number of committed tokens of all running answers over the time of a step by this machine's profile. The policy prefix adds drafts while Θ rises.")],
  verifyLen: [later("ℓ"), later("Verification length: how many of the drafts go before the target in this round.")],
  cut: [later("cut"), later("Where the scheduler ended: what lies behind the line was not verified.")],
};

export const nameOf = (term) => t(TERMS[term][0]);

// The name of a term, which explains itself on hover and on focus.
export function term(key, tag = "span") {
  const [name, definition] = TERMS[key];
  const node = make(tag);
  const inner = make("span", "ds-term", t(name));
  inner.tabIndex = 0;
  inner.dataset.tip = t(definition);
  node.append(inner);
  return node;
}
