// Suppressed candidates are tokens, often only the beginning of a word: the server completes them.

import { post } from "./api.js";

const AT_ONCE = 12;
const SPELLED = /\p{L}/u;

export class Pieces {
  /** `messages()` is the conversation. */
  constructor(messages) {
    this.messages = messages;
    this.kept = new Map();
  }

  /** Forget all words: the pictures or the question have changed. */
  forget() {
    this.kept.clear();
  }

  /** The whole words, by token, that candidates of an answer's step begin; a candidate without one is left out. */
  async of(answer, index, candidates) {
    const said = answer.tokens.slice(0, index).map(({ token }) => token);
    const key = said.join();
    const known = this.kept.get(key) ?? this.kept.set(key, {}).get(key);
    const missing = candidates.filter(({ token, text }) => SPELLED.test(text) && !(token in known)).map(({ token }) => token);
    if (missing.length) {
      const told = await post("/inspect/words", { messages: this.messages(), said, tokens: missing.slice(0, AT_ONCE) });
      Object.assign(known, told.words);
    }
    return known;
  }
}

/** A candidate as a reader should see it: its whole word, or its piece with an ellipsis while that is not known. */
export function whole({ token, text }, words = {}) {
  const piece = text.trim() || "␣";
  return words[token] ?? (SPELLED.test(piece) ? `${piece}…` : piece);
}
