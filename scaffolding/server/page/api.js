// The server as the page sees it: requests, and one stream of what happens to all jobs of the caller.
export class Refused extends Error {
  constructor(status, error) {
    super(error.message ?? `the server answers ${status}`);
    this.status = status;
    this.field = error.field ?? "";
  }
}

export async function ask(path, body, method = body ? "POST" : "GET") {
  const headers = {"X-Requested-With": "page"};
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {method, headers, body: body && JSON.stringify(body)});
  } catch {
    throw new Refused(0, {message: "the server does not answer; nothing is lost, try again once it is back"});
  }
  const text = await answer.text();
  let json = {};
  try { json = text ? JSON.parse(text) : {}; } catch { json = {}; }
  if (answer.ok) return json;
  if (answer.status === 401) news.dispatchEvent(new Event("signed out"));
  // Routes of other APIs say it in shapes of their own.
  const error = json.error?.message ? json.error : {message: json.errors || json.detail?.[0]?.msg || json.detail || json.error};
  throw new Refused(answer.status, {...error, message: typeof error.message === "string" ? error.message : undefined});
}

// "resync": jobs have to be looked at anew. "job": detail {event, job, ...}. "connection": detail true or false.
export const news = new EventTarget();
const NAMES = ["queued", "started", "step", "decode", "picture", "done", "failed", "cancelled"];
let source, last = 0, again;

// A window that is not looked at gives its connection back: a browser has six for all of them together.
export function listen() {
  clearTimeout(again);
  source?.close();
  source = undefined;
  if (document.hidden) return;
  const opened = source = new EventSource(`/api/v1/events?previews=true&after=${last}`);
  const told = (name, detail) => news.dispatchEvent(new CustomEvent(name, {detail}));
  opened.addEventListener("hello", e => {
    last = Number(e.lastEventId);
    told("connection", true);
    if (!JSON.parse(e.data).complete) told("resync");
  });
  for (const name of NAMES)
    opened.addEventListener(name, e => {
      last = Number(e.lastEventId);
      told("job", {event: name, ...JSON.parse(e.data)});
    });
  opened.onerror = () => {
    told("connection", false);
    if (opened.readyState !== EventSource.CLOSED) return;   // else it tries again by itself, with Last-Event-ID
    again = setTimeout(() => ask("/api/v1/session").then(listen, () => { again = setTimeout(listen, 2000); }), 1000);
  };
}
document.addEventListener("visibilitychange", () => { if (source || last) listen(); });
