// From tokens to the words a reader sees, and how far the picture supports each.

/** A word whose strength reaches this lacks support: half the largest penalty, as `reweigh describe --check` marks it. */
export const LACKS = 0.5;

const MARKS = /^[^\p{L}\p{N}]+$/u;
// Scripts without spaces: every token stands for itself.
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

/**
 * Cut a text at its tokens into words: runs of tokens without white space between them, punctuation apart.
 * `start` and `end` of a token count characters, which JavaScript's own indices do not.
 * A token that adds no character (half of one, or the end) belongs to the word after it.
 */
export function cut(text, tokens) {
  const characters = Array.from(text);
  const words = [];
  let waiting = [];
  for (const token of tokens) {
    const piece = characters.slice(token.start, token.end).join("");
    waiting.push(token);
    if (!piece) continue;
    const shown = piece.trim();
    const last = words.at(-1);
    if (!shown) {
      if (last) last.after += piece;
    } else if (last && joins(last, piece, shown)) {
      last.text += shown;
      last.after = piece.slice(piece.trimEnd().length);
      last.tokens.push(...waiting);
    } else {
      const before = piece.slice(0, piece.length - piece.trimStart().length);
      const after = piece.slice(piece.trimEnd().length);
      words.push({ before, text: shown, after, tokens: waiting });
    }
    waiting = [];
  }
  return words;
}

function joins(last, piece, shown) {
  if (last.after || piece !== piece.trimStart()) return false;
  if (UNSPACED.test(shown) || UNSPACED.test(last.text)) return false;
  return MARKS.test(last.text) === MARKS.test(shown);
}

/** Whether a word is punctuation alone. */
export const isMark = (text) => MARKS.test(text);

/** The token that speaks for a word: its first with a reference, else its first. */
export function speaker(word) {
  return word.tokens.find((token) => token.s !== null && token.s !== undefined) ?? word.tokens[0];
}

/** "short" for a word that lacks support, "fine" for one that has it, "unknown" without a reference. */
export function support(token) {
  if (token.s === null || token.s === undefined) return "unknown";
  return token.s >= LACKS ? "short" : "fine";
}

/**
 * How far the bar of a token reaches, 0 to 1: a half is its reference, and each half spans the scale b0, so that
 * the gap before the tick is the token's strength.
 */
export function reach(token, scale) {
  if (token.s === null || token.s === undefined || !scale) return null;
  return Math.min(Math.max(0.5 + (token.dmrr - token.b) / (2 * scale), 0), 1);
}
