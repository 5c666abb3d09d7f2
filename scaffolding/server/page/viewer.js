// One picture, with how it was made and what can be done with it.
import {ask, news} from "./api.js";
import {button, dialog, h, say} from "./dom.js";
import * as settings from "./settings.js";

function shown(p, alt) {
  if (p.type.startsWith("video/")) return h("video.big", {src: p.url, controls: true, loop: true, "aria-label": alt});
  return p.type.startsWith("image/") ? h("img.big", {src: p.url, alt}) : h("p", {}, "A zip of a PNG for each frame.");
}

// from: the gallery, whose next one the arrow keys lead to, or another place.
export async function show_picture(id, from) {
  let job, p;
  try {
    job = await ask(`/api/v1/jobs/${id.slice(0, id.lastIndexOf("-"))}`);
    p = job.pictures.find(one => one.id === id);
  } catch (e) { return say(e.message); }
  if (!p) return say("The picture is not there any more");
  const r = job.request, alt = r.prompt || `picture with seed ${p.seed}`;
  const facts = {Prompt: r.prompt, "Negative prompt": r.negative_prompt, Model: r.model,
    Sampler: r.sampler || "the model's own", Steps: r.steps, Guidance: r.guidance, Seed: p.seed,
    Size: `${p.width} x ${p.height}`, Frames: p.frames > 1 ? p.frames : "", Task: r.task,
    Change: r.image ? r.strength : "", Made: new Date(job.created * 1000).toLocaleString(),
    ...r.options};
  const list = h("dl");
  for (const [name, value] of Object.entries(facts))
    if (value !== "" && value !== undefined && value !== null)
      list.append(h("dt.soft", {}, name), h("dd", {}, String(value)));
  const go = by => {
    const next = from.beside?.(id, by);
    if (next) view.close(), show_picture(next, from);
  };
  const star = button(p.favourite ? "No favourite" : "Favourite", async () => {
    try {
      p.favourite = (await ask(`/api/v1/pictures/${id}`, {favourite: !p.favourite}, "PATCH")).favourite;
      star.textContent = p.favourite ? "No favourite" : "Favourite";
      news.dispatchEvent(new Event("pictures"));
    } catch (e) { say(e.message); }
  });
  let sure = false;
  const remove = button("Delete", async () => {
    if (!sure) { sure = true; remove.textContent = "Delete for good?"; return; }
    try {
      await ask(`/api/v1/pictures/${id}`, undefined, "DELETE");
      view.close();
      news.dispatchEvent(new Event("pictures"));
      say("Deleted");
    } catch (e) { say(e.message); }
  });
  const create = () => { view.close(); location.hash = "create"; };
  const view = dialog("Picture", shown(p, alt), h("div.row", {},
    from.beside ? [button("Previous", () => go(-1)), button("Next", () => go(1))] : [],
    button("Use settings", () => {
      settings.use({...settings.of_job(r), seed: String(p.seed)});
      create();
    }),
    p.type.startsWith("image/") ? button("Begin with it", async () => {
      document.querySelector("sf-create").begin_with(await (await fetch(p.url)).blob());
      create();
    }) : [],
    star, button("Save", () => h("a", {href: p.url, download: `${id}.${p.type.split("/")[1]}`}).click()), remove,
    button("Close", () => view.close(), {className: "main"})), list);
  view.addEventListener("keydown", e => {
    if (e.target.tagName === "VIDEO") return;
    if (e.key === "ArrowLeft" || e.key === "ArrowRight") e.preventDefault(), go(e.key === "ArrowLeft" ? -1 : 1);
  });
}
