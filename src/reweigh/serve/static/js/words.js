// From tokens to the words a reader sees, how far the picture supports each, and which words two answers do not share.

const rules = { threshold: 0, functionWords: new Set() };

/** Judge words as `reweigh describe --check` does; `check` is that of the server's facts. */
export function judgeBy(check) {
  rules.threshold = check.threshold;
  rules.functionWords = new Set(check.function_words);
}

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

/** The token that speaks for a word: the one that begins it. */
export const speaker = (word) => word.tokens[0];

/** Evidence as a share of the token's own reference; null without one. */
export function ratio(token) {
  return token.b === null || token.b === undefined ? null : token.dmrr / token.b;
}

/** "unsupported" for a token that lacks support, "fine" for one that has it, "unjudged" without a reference. */
export function support(token) {
  const share = ratio(token);
  if (share === null) return "unjudged";
  return share < rules.threshold ? "unsupported" : "fine";
}

/** The support of a word; "plain" for function words, numbers and punctuation, which are not judged. */
export function judge(word) {
  const letters = word.text.match(/\p{L}(?:.*\p{L})?/su)?.[0].toLowerCase();
  return letters && !rules.functionWords.has(letters) ? support(speaker(word)) : "plain";
}

/** How far the bar of a token reaches, 0 to 1: a half is its reference, the whole twice as much or more. */
export function reach(token) {
  const share = ratio(token);
  return share === null ? null : Math.min(share / 2, 1);
}

/** For each word of either list, whether the other lacks it. */
export function differences(left, right) {
  const best = table(left, right);
  const marks = [left.map(() => true), right.map(() => true)];
  let i = 0;
  let j = 0;
  while (i < left.length && j < right.length) {
    if (left[i] === right[j]) {
      marks[0][i++] = false;
      marks[1][j++] = false;
    } else if (best[i + 1][j] >= best[i][j + 1]) i++;
    else j++;
  }
  return marks;
}

function table(left, right) {
  const best = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--)
    for (let j = right.length - 1; j >= 0; j--)
      best[i][j] = left[i] === right[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  return best;
}
