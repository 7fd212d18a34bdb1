// What is known of a drawn scene: which words name objects, and whether those objects are there.

export class Truth {
  /** `names` maps every name that objects have in text to the object it means. */
  constructor(names) {
    this.names = names;
    const forms = Object.keys(names).sort((one, other) => other.length - one.length).map((form) => form.replace(/[^\w ]/g, "\\$&"));
    this.pattern = new RegExp(`\\b(?:${forms.join("|")})\\b`, "gi");
  }

  /** The mentions of objects in an answer's words: the object, whether it is there, and the places of its words. */
  mentions(words, objects) {
    const text = words.map(({ before, text, after }) => before + text + after).join("");
    const found = Array.from(text.matchAll(this.pattern), (match) => ({
      object: this.names[match[0].toLowerCase()], start: match.index, end: match.index + match[0].length, places: [],
    }));
    let at = 0;
    words.forEach(({ before, text, after }, place) => {
      const start = at + before.length;
      for (const one of found) if (start < one.end && start + text.length > one.start) one.places.push(place);
      at = start + text.length + after.length;
    });
    return found.map(({ object, places }) => ({ object, places, there: object in objects }));
  }

  /** The one object whose names can begin with a word ("traffic"), or null. */
  begunBy(word) {
    const wanted = word.toLowerCase();
    const objects = new Set(Object.entries(this.names)
      .filter(([form]) => form === wanted || form.startsWith(`${wanted} `)).map(([, object]) => object));
    return objects.size === 1 ? [...objects][0] : null;
  }
}
