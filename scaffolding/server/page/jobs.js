// The caller's jobs that wait or run, as the server's events tell of them, and their list.
import {ask, news} from "./api.js";
import {button, h, say, seldom} from "./dom.js";

export const active = new Map();   // id -> job
export const is_over = job => !["waiting", "running"].includes(job.state);
// Answers may overtake each other: what has ended stays as it ended.
export const newer = (known, job) => known?.id === job.id && is_over(known) && !is_over(job) ? known : job;

// A job as it is by now. Asked again where the server has no answer yet: a database that is back is so for one
// connection after the other, and nothing else would tell of the end again. known: what is said where it stays silent.
async function asked(id, known) {
  for (let tries = 0; ; ++tries) {
    try {
      return await ask(`/api/v1/jobs/${id}`);
    } catch (e) {
      if ((e.status !== 0 && e.status !== 503) || tries === 60) return known;
      await new Promise(next => setTimeout(next, 1000));
    }
  }
}

// A job is made. Of a quick one the server's events may come before the answer that tells its number: it is asked for
// anew then, as it is by now.
const early = new Set();   // ids of jobs that were told of and are not known
export async function submit(request) {
  let job = await ask("/api/v1/jobs", request);
  while (early.delete(job.id)) job = newer(job, await asked(job.id, job));
  if (!is_over(job)) active.set(job.id, job);
  news.dispatchEvent(new Event("jobs"));
  return job;
}

// The job that an event is of, as it is after it; asked for where only the server knows.
export async function job_of(event) {
  const job = active.get(event.job);
  if (event.event === "step" && job) {
    const share = event.step / event.steps;
    Object.assign(job, {state: "running", step: event.step, steps: event.steps});
    job.progress = Math.max(job.progress, (job.pictures.length + share) / job.request.count);
    return job;
  }
  if (event.event === "decode" && job) return Object.assign(job, {decoded: event.done});
  return asked(event.job, job);
}

async function look_again() {
  try {
    const {jobs} = await ask("/api/v1/jobs?state=active");
    active.clear();
    for (const job of jobs) active.set(job.id, job);
    news.dispatchEvent(new Event("jobs"));
  } catch (e) {
    if (e.status === 503) setTimeout(soon, 1000);   // else the connection tells
  }
}
const soon = seldom(150, look_again);

news.addEventListener("resync", look_again);
news.addEventListener("job", ({detail}) => {
  if (!active.has(detail.job)) {
    if (early.size > 1000) early.clear();
    early.add(detail.job);
  }
  if (detail.event === "step" || detail.event === "decode") job_of(detail).then(() => news.dispatchEvent(new Event("jobs")));
  else soon();   // every place in the queue may be another one
});

export function jobs_list() {
  const list = h("ul.jobs", {"aria-label": "Jobs that wait or run"}), empty = h("p.soft", {}, "Nothing waits.");
  const rows = new Map();
  const change = (id, body, method) => ask(`/api/v1/jobs/${id}`, body, method).then(soon, e => say(e.message));
  const row_of = id => {
    const row = h("li", {}, h("span.prompt"), h("span.row", {},
      button("Urgent", () => change(id, {priority: "high"}, "PATCH")), button("Cancel", () => change(id, undefined, "DELETE"))),
    h("span.soft"), h("progress", {max: 1, "aria-label": "Progress"}));
    rows.set(id, row);
    return row;
  };
  news.addEventListener("jobs", () => {
    for (const [id, row] of rows) if (!active.has(id)) row.remove(), rows.delete(id);
    const order = [...active.values()].sort((a, b) => (a.queue_place ?? -1) - (b.queue_place ?? -1));
    order.forEach((job, place) => {
      const row = rows.get(job.id) ?? row_of(job.id), [prompt, buttons, state, bar] = row.children;
      const waits = job.state === "waiting";
      prompt.textContent = job.request.prompt || job.request.model;
      buttons.firstChild.hidden = !waits || job.priority === "high";
      buttons.lastChild.setAttribute("aria-label", `Cancel ${prompt.textContent.slice(0, 60)}`);
      state.textContent = waits ? `${(job.queue_place ?? 0) + 1}. in the queue` :
        `picture ${Math.min(job.pictures.length + 1, job.request.count)} of ${job.request.count}, step ${job.step} of ${job.steps || "?"}`;
      bar.hidden = waits;
      bar.value = job.progress;
      if (list.children[place] !== row) list.insertBefore(row, list.children[place] ?? null);
    });
    empty.hidden = active.size > 0;
  });
  return h("div", {}, list, empty);
}
