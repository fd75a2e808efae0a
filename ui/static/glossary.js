// Terms that no table or picture carries, for the glossary beside `terms.js`.

export const GENERAL_TERMS = [
  ["target model", "The model whose text you get. It decides about every token."],
  ["drafter", "The small model that guesses ahead. It costs time when it is wrong, never quality."],
  ["γ", "How many tokens the drafter can draft in one block."],
  ["τ", "Tokens committed per round: accepted drafts plus the target's own token."],
  ["correction", "The target's own token in place of the first rejected draft, drawn from the residual."],
  ["bonus", "The target's own token after a round whose verified drafts were all accepted."],
  ["acceptance rate", "Accepted drafts over verified drafts, not over drafted ones."],
  ["wasted", "Verified drafts that did not get into the text."],
  ["policy", "The rule by which the scheduler chooses how many drafts are verified. It may look at confidences of drafts up to a place, never at what lies behind it."],
  ["step curve, SPS(B)", "Steps a second by the number of tokens B in the pass, measured once on this machine."],
  ["budget per request", "Tokens in the pass for each request: its anchor and its verified drafts."],
  ["calibration", "A temperature for each position by which raw confidences become true chances; fitted on answers kept for that."],
];
