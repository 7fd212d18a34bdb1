// The page: what is set, what is asked, and which word is open.

import { Answer } from "./answer.js";
import { decode, get, post, Trouble, useKey } from "./api.js";
import { byId, el, say } from "./dom.js";
import { Heat } from "./heat.js";
import { LONGEST, read, save, trace, write } from "./keep.js";
import { lesson } from "./lesson.js";
import { Pictures } from "./pictures.js";
import { Pieces, whole } from "./pieces.js";
import { number } from "./step.js";
import { Truth } from "./truth.js";
import { Why } from "./why.js";
import { differences, judge, judgeBy } from "./words.js";

let facts;
let pictures;
let heat;
let pieces;
let truth; // of drawn scenes; null for other models
let why;
let left;
let right;
let checked;
let running = null; // AbortController
let measured = "";

async function begin() {
  try {
    facts = await get("/inspect/facts");
  } catch (error) {
    if (error.status !== 401) return trouble(error.message);
    if (!byId("key-form").hidden) trouble(error.message);
    byId("key-form").hidden = false;
    return byId("key").focus();
  }
  byId("key-form").hidden = true;
  trouble("");
  build();
  await restore(read(location.hash));
}

function build() {
  judgeBy(facts.check);
  left = new Answer(byId("left"), { name: "Base", look });
  right = new Answer(byId("right"), { name: "ReWEIGH", look });
  checked = new Answer(byId("checked"), { name: "Checked text", look });
  checked.checked = true;
  pictures = new Pictures({ limits: facts.limits, scenes: facts.scenes, changed: forget, refused: trouble });
  heat = new Heat({ pictures: () => pictures.list, messages });
  pieces = new Pieces(messages);
  truth = facts.scenes ? new Truth(facts.scenes.names) : null;
  why = new Why({ heat, pieces, truth: truthOf, failed: trouble });
  describe();
  for (const sample of document.querySelectorAll(".sample[data-fill]")) {
    const bar = el("span", { class: "bar" });
    bar.style.setProperty("--reach", sample.dataset.fill);
    sample.append(bar);
  }
  listen();
}

/** Say what is served, and what it cannot do. */
function describe() {
  const { reweigh, parity } = facts;
  const known = reweigh.available ? ` · layers ${reweigh.layers.join(", ")} of ${reweigh.blocks} · ${reweigh.registered} words with a reference` : "";
  byId("facts").textContent = `${facts.model}${known}`;
  byId("foot").textContent = `reweigh ${facts.version}. This page talks only to the server it came from.`;
  const offered = facts.decoders.filter(({ name }) => name !== "reweigh" && name !== "greedy");
  byId("beside").replaceChildren(...offered.map(({ name, title }) => el("option", { value: name }, title)));
  if (!reweigh.available) {
    const more = parity && !parity.holds
      ? "Its answers are shown without judging their words."
      : "Its answers are shown, but words cannot be compared with what is normal for them.";
    say(byId("notice"), `ReWEIGH is not available for this model: ${reweigh.reason}. ${more}`);
    for (const id of ["beta-setting", "layer-setting", "legend", "check"]) byId(id).hidden = true;
    byId("right").closest("article").hidden = true;
    return;
  }
  byId("layer").max = reweigh.layers.length - 1;
  byId("layer-setting").hidden = reweigh.layers.length < 2;
  byId("beta").max = Math.max(4, Math.ceil(2 * reweigh.beta));
}

function listen() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    ask("both");
  });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("beta").addEventListener("input", () => settle(() => ask("right")));
  byId("layer").addEventListener("input", () => {
    why.turn(layer());
    settle(() => ask(beside() === "base" ? "both" : "right"));
    if (!byId("checked").hidden) check();
  });
  byId("beside").addEventListener("change", () => ask("both"));
  byId("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      byId("ask").requestSubmit();
    }
  });
  byId("check-form").addEventListener("submit", (event) => {
    event.preventDefault();
    check();
  });
  byId("step-before").addEventListener("click", () => walk(-1));
  byId("step-after").addEventListener("click", () => walk(1));
  byId("step-close").addEventListener("click", close);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  byId("share").addEventListener("click", share);
  byId("save-lesson").addEventListener("click", saveLesson);
  byId("save-trace").addEventListener("click", () => {
    if (!left.text && !right.text) return say(byId("keep-status"), "Ask something first.");
    save("reweigh-trace.json", trace({ facts, question: question(), pictures: pictures.list, answers: [left, right] }));
  });
}

const question = () => byId("question").value.trim();
const beta = () => Number(byId("beta").value);
const layer = () => facts.reweigh.layers[Number(byId("layer").value)];
const beside = () => byId("beside").value;
const title = () => byId("beside").selectedOptions[0]?.textContent ?? "Base";

function messages() {
  const shown = pictures.list.map(({ url }) => ({ type: "image_url", image_url: { url } }));
  return [{ role: "user", content: [...shown, { type: "text", text: question() }] }];
}

function settle(then) {
  byId("beta-shown").textContent = number(beta(), 1);
  byId("layer-shown").textContent = `${layer()} of ${facts.reweigh.blocks}`;
  byId("layer").setAttribute("aria-valuetext", `layer ${layer()} of ${facts.reweigh.blocks}`);
  if (then && pictures.list.length && (left.text || right.text)) then();
}

/** New pictures: forget what was known about the old ones. */
function forget() {
  running?.abort();
  measured = "";
  trouble("");
  close();
  heat.forget();
  pieces.forget();
  for (const one of [left, right, checked]) one.clear();
  byId("checked").hidden = true;
  say(byId("check-status"), "");
  say(byId("strange"), pictures.areStrange()
    ? "This picture is not a drawn scene. The small model of this page knows only drawings like “Another scene”; what it says about other pictures means nothing."
    : "");
  if (ready) ask("both");
}
let ready = false;

async function ask(sides) {
  if (!pictures.list.length) return trouble("Add a picture first: drop one, paste one, or choose one.");
  if (!question()) return trouble("Write a question first.");
  const began = performance.now();
  running?.abort();
  const own = (running = new AbortController());
  // an answer that was cut off has to be written again with the other one
  const partly = sides === "right" && !left.finished;
  const wanted = partly ? "both" : sides;
  if (wanted === "both") left.finished = false;
  busy(true);
  trouble("");
  try {
    if (facts.reweigh.available) await measure(own.signal);
    let waited = null;
    const first = () => {
      waited ??= performance.now() - began;
    };
    name();
    const set = { model: facts.model, messages: messages(), beside: beside(), beta: beta(), layer: layer(), sides: wanted };
    await decode({ ...set, available: facts.reweigh.available }, { left, right }, own.signal, first);
    left.finished = true;
    finish(waited);
  } catch (error) {
    if (running !== own) return;
    if (error.name === "AbortError") byId("status").textContent = "Stopped.";
    else {
      byId("status").textContent = "";
      trouble(error.message);
    }
  } finally {
    if (running === own) busy(false);
  }
}

/** Measure all layers before the first answer, so that moving a slider needs no new measurement. */
async function measure(signal) {
  const key = JSON.stringify(messages());
  if (measured === key) return;
  byId("status").textContent = "Measuring the picture …";
  heat.forget();
  pieces.forget();
  await post("/inspect/measure", { messages: messages() }, signal);
  measured = key;
}

function name() {
  byId("status").textContent = "Writing …";
  left.rename(title());
  byId("left-title").textContent = title();
  const chosenOne = facts.decoders.find(({ name }) => name === beside());
  const whole = chosenOne?.streams === false ? " It shows its answer when all of it is written." : "";
  byId("left-note").textContent = (beside() === "base" ? "The model alone, greedy decoding." : "Another way to decode the same model.") + whole;
  byId("right-note").textContent = `Words without support lose up to ${number(beta(), 1)} of their score (layer ${layer()}).`;
}

function finish(waited) {
  const words = (one) => one.words.map(({ text }) => text);
  const both = facts.reweigh.available;
  const differ = both ? differences(words(left), words(right)) : [[], []];
  const objects = truth && pictures.objects;
  for (const entry of document.querySelectorAll(".known")) entry.hidden = !objects;
  [left, right].forEach((one, side) => one.mark(differ[side], objects ? truth.mentions(one.words, objects) : []));
  reopen();
  byId("status").textContent = both ? `${differ[1].filter(Boolean).length} words differ. ${counts(objects)}` : "Done.";
  document.documentElement.dataset.firstWord = waited === null ? "" : waited.toFixed(0);
  completeWords();
}

/** Count what each answer says without support, and, where the scene is known, what is not in it. */
function counts(objects) {
  const sides = (count) => `${count(left)} on the left, ${count(right)} on the right.`;
  const lacking = sides((one) => one.words.filter((word) => judge(word) === "unsupported").length);
  const absent = sides((one) => one.mentions.filter(({ there }) => !there).length);
  return `${objects ? `Not in the scene: ${absent} ` : ""}Lacks support: ${lacking}`;
}

/** Write suppressed words whole: what is known of them at first is only a token. */
async function completeWords() {
  const own = running;
  for (const answer of [left, right])
    for (const { place, index, lost } of answer.suppressed) {
      const words = await pieces.of(answer, index, [lost]).catch(() => ({}));
      if (running !== own) return;
      answer.complete(place, whole(lost, words));
    }
  document.documentElement.dataset.whole = "true";
}

/** What is known of a word in a scene: of the one suppressed at a place (`held`), or of the one written there. */
function truthOf(answer, place, held) {
  const objects = truth && pictures.objects;
  if (!objects) return null;
  if (held) {
    const object = truth.begunBy(held);
    return object && { object, there: object in objects };
  }
  return truth.mentions(answer.words, objects).find(({ places }) => places.includes(place)) ?? null;
}

/** Keep the open word open if the new answer has it in the same place. */
function reopen() {
  if (!why.shown || why.shown.answer === checked) return;
  const { answer, place, text } = opened;
  if (answer.words[place]?.text === text) open(answer, place);
  else close();
}

function busy(is) {
  if (is) delete document.documentElement.dataset.whole;
  byId("stop").hidden = !is;
  byId("answers").setAttribute("aria-busy", String(is));
  document.documentElement.dataset.busy = String(is);
}

/** A word was reached or chosen; one that is open already is closed. */
function look(answer, place, how) {
  const again = why.shown?.answer === answer && why.shown.place === place;
  if (how === "focus") return why.shown && !again && open(answer, place);
  if (again) return close();
  open(answer, place);
  // on a small screen the sheet covers the lower half
  if (matchMedia("(max-width: 900px)").matches) answer.buttons[place].scrollIntoView({ block: "start" });
  return undefined;
}

let opened = null; // {answer, place, text}

function open(answer, place) {
  if (!answer.facts || !answer.words[place]) return;
  opened = { answer, place, text: answer.words[place].text };
  why.open(answer, place, layer());
  point();
}

function point() {
  for (const answer of [left, right, checked]) answer.point(why.shown?.answer === answer ? why.shown.place : -1);
}

function walk(by) {
  const { answer, place } = why.shown;
  if (answer.words[place + by]) open(answer, place + by);
}

function close() {
  why.close();
  point();
}

async function check() {
  const text = byId("check-text").value;
  if (!pictures.list.length) return trouble("Add a picture first: drop one, paste one, or choose one.");
  if (!text.trim()) return say(byId("check-status"), "Paste a text first.");
  say(byId("check-status"), "Checking …");
  try {
    const told = await post("/inspect/check", { messages: messages(), text, layer: layer() });
    checked.clear();
    byId("checked").hidden = false;
    checked.push(told.text, { decoder: null, beta: null, layer: told.layer, b0: told.b0, tokens: told.tokens });
    const listed = (kind) => checked.words.filter((word) => judge(word) === kind).map((word) => word.text);
    const short = listed("unsupported");
    const unknown = listed("unjudged");
    const many = short.length === 1 ? "1 word lacks" : `${short.length} words lack`;
    const said = short.length ? `${many} support: ${short.join(", ")}.` : "No judged word lacks support.";
    say(byId("check-status"), unknown.length ? `${said} Not judged: ${unknown.join(", ")}.` : said);
  } catch (error) {
    say(byId("check-status"), "");
    trouble(error.message);
  }
  return undefined;
}

function state() {
  const one = pictures.scene === null && pictures.list.length === 1 ? pictures.list[0].url : "";
  const known = facts.reweigh.available;
  const at = why.shown && why.shown.answer !== checked ? why.shown : null;
  return {
    scene: pictures.scene, question: question(), beside: beside(),
    beta: known ? beta() : null, layer: known ? layer() : null, picture: one.length <= LONGEST ? one : null,
    answer: at ? (at.answer === left ? "left" : "right") : null, step: at ? at.place : null,
  };
}

/** Save one file for class: everything on the page that was suppressed, with its reason and maps. */
async function saveLesson() {
  if (!left.text && !right.text) return say(byId("keep-status"), "Ask something first.");
  say(byId("keep-status"), "Drawing the maps …");
  try {
    const steps = [];
    for (const answer of [left, right])
      for (const { place } of answer.suppressed) steps.push({ answer, place, index: steps.length, found: await why.find(answer, place) });
    const said = { facts, question: question(), pictures: pictures.list, scene: byId("scene").textContent };
    save("why-this-word.html", await lesson({ ...said, answers: [left, right].filter((one) => one.text), steps, why, layer: layer() }));
    say(byId("keep-status"), "Saved: one file that needs no server.");
  } catch (error) {
    say(byId("keep-status"), "");
    trouble(error.message);
  }
  return undefined;
}

async function share() {
  const now = state();
  history.replaceState(null, "", write(now));
  const lost = now.scene === null && !now.picture && pictures.list.length;
  const but = lost ? " It holds question and settings; the picture is too large and stays here." : "";
  try {
    await navigator.clipboard.writeText(location.href);
    say(byId("keep-status"), `Link copied.${but}`);
  } catch {
    say(byId("keep-status"), `The link is in the address bar.${but}`);
  }
}

/** Set the page up as a link says, and decode; the embedded model starts with a scene. */
async function restore(wanted) {
  const { reweigh } = facts;
  byId("question").value = wanted.question ?? facts.prompt;
  byId("beta").value = wanted.beta ?? reweigh.beta ?? 0;
  byId("layer").value = Math.max(0, reweigh.layers.indexOf(wanted.layer ?? reweigh.layer));
  if (facts.decoders.some(({ name }) => name === wanted.beside)) byId("beside").value = wanted.beside;
  else byId("beside").value = "base";
  if (reweigh.available) settle();
  if (wanted.picture) await pictures.showUrl(wanted.picture);
  else if (facts.scenes) await pictures.showScene(wanted.scene ?? facts.scenes.first);
  ready = true;
  if (!pictures.list.length) return;
  await ask("both");
  const answer = { left, right }[wanted.answer];
  if (answer?.words[wanted.step]) open(answer, wanted.step);
}

function trouble(message) {
  say(byId("trouble"), message);
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value.trim());
  begin();
});
addEventListener("unhandledrejection", (event) => {
  if (event.reason instanceof Trouble) trouble(event.reason.message);
});
begin();
