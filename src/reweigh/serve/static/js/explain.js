// Sentences about one token, for readers who have never heard of logits.

import { support } from "./words.js";

const quoted = (text) => `“${text.trim() || "␣"}”`;
const milli = (value) => (1000 * value).toFixed(2);
export const number = (value, digits = 2) => (value === null || value === undefined ? "–" : value.toFixed(digits));
export const strength = (value) => (value === null || value === undefined ? "not judged" : value.toFixed(2));
export const evidence = (value) => (value === null || value === undefined ? "–" : milli(value));

/** What happened at the step of a token, in one or two sentences; `kind` is how its word is judged. */
export function tell(token, { decoder, beta }, kind) {
  if (token.replaced) return `${heldBack(token)} ${instead(token)}`;
  if (kind === "plain") return `${quoted(token.text)} is not judged: small words, numbers and punctuation say little about a picture.`;
  if (!token.candidates) return `${quoted(token.text)}: ${standing(token)}`;
  const own = token.candidates.find((one) => one.token === token.token);
  if (decoder === "base" || beta === 0) return `${quoted(token.text)} was written; nothing was edited. ${capital(standing(token))}`;
  if (own?.shift > 0) return `${quoted(token.text)} lost ${number(own.shift)} but was still written: ${standing(token)}`;
  return `${quoted(token.text)} was written and lost nothing: ${standing(token)}`;
}

function heldBack(token) {
  const lost = token.candidates.find((one) => one.token === token.replaced.token);
  if (!lost || lost.s === null) return `${quoted(token.replaced.text)} was ahead.`;
  return (
    `${quoted(token.replaced.text)} was ahead, but the picture shows less of it than usual ` +
    `(${milli(lost.dmrr)}, usually ${milli(lost.b)}), so it lost ${number(lost.shift)}.`
  );
}

function instead(token) {
  return `${quoted(token.text)} was written instead.`;
}

/** How a token's evidence compares with its reference. */
function standing(token) {
  if (token.s === null || token.s === undefined)
    return "it is not judged, because it is not known what is normal for it, and it is never held back.";
  const numbers = `(${milli(token.dmrr)}, usually ${milli(token.b)})`;
  if (token.s === 0) return `the picture shows at least as much of it as usual ${numbers}.`;
  const much = support(token) === "short" ? "much less" : "a little less";
  return `the picture shows ${much} of it than usual ${numbers}.`;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
