// Talking to the server: JSON, streamed answers and which side they belong to, and errors as their messages.

/** An error reported by the server or the connection. */
export class Trouble extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

let key = "";

/** Present this API key from now on. */
export function useKey(given) {
  key = given;
}

export const get = (path) => call(path, {}).then((answer) => answer.json());

export const post = (path, body, signal) => send(path, body, signal).then((answer) => answer.json());

/** The frames of a streamed chat completion, as they come. */
async function* stream(body, signal) {
  const answer = await send("/v1/chat/completions", { ...body, stream: true }, signal);
  for await (const frame of events(answer.body)) {
    if (frame === "[DONE]") return;
    const value = JSON.parse(frame);
    if (value.error) throw new Trouble(value.error.message);
    yield value;
  }
  throw new Trouble("the server ended the answer too early");
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (kept + value).split("\n\n");
    kept = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
  }
}

function send(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return call(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function call(path, options) {
  const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("the server cannot be reached; is it still running?");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  throw new Trouble(told?.error?.message ?? `the server answered ${answer.status}`, answer.status);
}

/**
 * Write the answers again: `sides` is "both" or "right". The base model and ReWEIGH are two choices of one
 * request, decoded together; a rival is asked on its own. `first()` is called with the first word that arrives.
 */
export async function decode({ model, messages, beside, beta, layer, available, sides }, { left, right }, signal, first) {
  const common = { model, messages };
  const edited = { trace: true, layer };
  const runs = [];
  if (!available) runs.push([{ ...common, reweigh: { decoder: beside, evidence: true } }, [left]]);
  else if (sides === "right") runs.push([{ ...common, reweigh: { ...edited, beta } }, [right]]);
  else if (beside === "base") runs.push([{ ...common, n: 2, reweigh: { ...edited, beta: [0, beta] } }, [left, right]]);
  else {
    runs.push([{ ...common, reweigh: { decoder: beside, evidence: true } }, [left]]);
    runs.push([{ ...common, reweigh: { ...edited, beta } }, [right]]);
  }
  const ends = await Promise.allSettled(runs.map(([body, answers]) => write(body, answers, signal, first)));
  const failed = ends.find(({ status }) => status === "rejected"); // the other side has still finished
  if (failed) throw failed.reason;
}

async function write(body, answers, signal, first) {
  let begun = false;
  const clear = () => answers.forEach((answer) => answer.clear());
  try {
    for await (const frame of stream(body, signal)) {
      if (!begun) clear();
      begun = true;
      for (const choice of frame.choices) {
        if (choice.delta.content) first();
        if (choice.delta.content || choice.reweigh) answers[choice.index].push(choice.delta.content ?? "", choice.reweigh);
      }
    }
  } catch (error) {
    if (!begun && error.name !== "AbortError") clear(); // the old words do not answer this question
    throw error;
  }
}
