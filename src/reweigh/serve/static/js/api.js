// Talking to the server: JSON, streams of server-sent events, and errors as their messages.

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
export async function* stream(body, signal) {
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
