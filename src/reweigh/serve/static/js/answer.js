// One answer on the page: words that grow as they stream, each with its bar, reached one by one with the arrow keys.

import { aloud, el } from "./dom.js";
import { whole } from "./pieces.js";
import { cut, judge, reach, speaker } from "./words.js";

export class Answer {
  /**
   * `root` holds the words, `name` is for screen readers, and `look(answer, place, how)` is called when a word or the
   * struck-out one before it is reached ("focus") or chosen ("pick").
   */
  constructor(root, { name, look }) {
    this.root = root;
    this.look = look;
    this.clear();
    this.rename(name);
    root.setAttribute("role", "group");
    root.addEventListener("keydown", (event) => this.#move(event));
    for (const [kind, how] of [["focusin", "focus"], ["click", "pick"]])
      root.addEventListener(kind, (event) => this.#tell(event, how));
  }

  rename(name) {
    this.name = name;
    this.root.setAttribute("aria-label", `${name}: words, arrow keys move between them`);
  }

  /** Forget everything that was written. */
  clear() {
    this.text = "";
    this.tokens = [];
    this.words = [];
    this.facts = null;
    this.buttons = [];
    this.mentions = [];
    this.root.replaceChildren();
  }

  /** Take some more text, and what is known of its tokens (`told` is a choice's `reweigh`). */
  push(text, told) {
    this.text += text;
    if (told) {
      this.facts = { decoder: told.decoder, beta: told.beta, layer: told.layer, scale: told.b0 };
      this.tokens.push(...told.tokens);
    }
    this.#draw();
  }

  /** Mark the words that the other answer lacks, and those that name an object of a known scene, there or not. */
  mark(differs, mentions = []) {
    this.mentions = mentions;
    this.buttons.forEach((button, place) => {
      const mention = mentions.find(({ places }) => places.includes(place));
      const truth = mention && (mention.there ? "grounded" : "hallucinated");
      button.classList.remove("grounded", "hallucinated");
      if (truth) button.classList.add(truth);
      button.classList.toggle("changed", Boolean(differs[place]));
      button.querySelectorAll(".marked-aloud").forEach((one) => one.remove());
      for (const said of [mention && !mention.there && " (not in the scene)", differs[place] && " (differs)"].filter(Boolean)) {
        const span = aloud(said);
        span.classList.add("marked-aloud");
        button.append(span);
      }
    });
  }

  /** The steps at which another token was suppressed: place of the word, index of the step, the suppressed token. */
  get suppressed() {
    return this.words.flatMap((word, place) => {
      const one = word.tokens.find((token) => token.replaced);
      return one ? [{ place, index: this.tokens.indexOf(one), lost: one.replaced }] : [];
    });
  }

  /** Write a suppressed word whole. */
  complete(place, text) {
    this.buttons[place]?.parentNode.querySelector(".held del")?.replaceChildren(text);
  }

  /** Show which word is open. */
  point(open) {
    this.buttons.forEach((button, place) => {
      for (const one of button.parentNode.querySelectorAll("button")) one.setAttribute("aria-pressed", String(place === open));
    });
  }

  /** All that can be reached, in order. */
  get #stops() {
    return Array.from(this.root.querySelectorAll("button"));
  }

  #reach(button) {
    for (const one of this.#stops) one.tabIndex = one === button ? 0 : -1;
  }

  /** Draw what is new; a word that did not change keeps its element, and with it the focus. */
  #draw() {
    const words = cut(this.text, this.tokens);
    let same = 0;
    while (same < words.length && same < this.words.length && alike(words[same], this.words[same])) same++;
    for (const button of this.buttons.splice(same)) button.parentNode.remove();
    this.words = words;
    for (const word of words.slice(same)) this.root.append(this.#word(word));
  }

  #word(word) {
    const kind = judge(word);
    const button = el("button", { type: "button", class: `word ${kind}`, "aria-pressed": "false" }, word.text);
    button.tabIndex = this.buttons.length ? -1 : 0;
    const far = kind === "plain" ? null : reach(speaker(word));
    if (far !== null) {
      const bar = el("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--reach", far.toFixed(3));
      button.append(bar);
    }
    if (kind === "unsupported") button.append(aloud(" (lacks support)"));
    if (kind === "unjudged") button.append(aloud(" (not judged)"));
    this.buttons.push(button);
    const held = word.tokens.find((one) => one.replaced)?.replaced;
    return el("span", { class: "place" }, word.before, held ? struck(held) : null, held ? " " : null, button, word.after);
  }

  #tell(event, how) {
    const button = event.target.closest("button");
    const place = this.buttons.findIndex((one) => one.parentNode === button?.parentNode);
    if (place < 0) return;
    // a finger or the mouse also moves the focus, and picks the word right after
    if (how === "focus" && !event.target.matches(":focus-visible")) return;
    this.#reach(button);
    this.look(this, place, how);
  }

  #move(event) {
    const stops = this.#stops;
    const here = stops.indexOf(event.target.closest("button"));
    const last = stops.length - 1;
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: last }[event.key];
    if (here < 0 || to === undefined || to < 0 || to > last || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.#reach(stops[to]);
    stops[to].focus();
  }
}

function struck(held) {
  const button = el("button", { type: "button", class: "held", "aria-pressed": "false" }, aloud("suppressed: "), el("del", { class: "suppressed" }, whole(held)));
  button.tabIndex = -1;
  return button;
}

function alike(one, other) {
  return one.text === other.text && one.before === other.before && one.after === other.after
    && one.tokens.length === other.tokens.length;
}
