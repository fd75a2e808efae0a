// Terms that no table or picture carries, for the glossary beside `terms.js`.

import { later } from "./words.js";

export const GENERAL_TERMS = [
  [later("target model"), later("The model whose text you get. It decides about every token.")],
  [later("drafter"), later("The small model that guesses ahead. It costs time when it is wrong, never quality.")],
  [later("γ"), later("How many tokens the drafter can draft in one block.")],
  [later("τ"), later("Tokens committed per round: accepted drafts plus the target's own token.")],
  [later("correction"), later("The target's own token in place of the first rejected draft, drawn from the residual.")],
  [later("bonus"), later("The target's own token after a round whose verified drafts were all accepted.")],
  [later("acceptance rate"), later("Accepted drafts over verified drafts, not over drafted ones.")],
  [later("wasted"), later("Verified drafts that did not get into the text.")],
  [later("policy"), later("The rule by which the scheduler chooses how many drafts are verified. It may look at confidences of drafts up to a place, never at what lies behind it.")],
  [later("step curve, SPS(B)"), later("Steps a second by the number of tokens B in the pass, measured once on this machine.")],
  [later("budget per request"), later("Tokens in the pass for each request: its anchor and its verified drafts.")],
  [later("calibration"), later("A temperature for each position by which raw confidences become true chances; fitted on answers kept for that.")],
];
