// X/Y grids: one job for each pair of values, in a table that goes on after a reload.
import {ask, news} from "./api.js";
import {button, h, say} from "./dom.js";
import {newer} from "./jobs.js";
import {show_picture} from "./viewer.js";

const AXES = {"": "nothing", steps: "Steps", guidance: "Guidance", sampler: "Sampler", seed: "Seed", model: "Model",
  prompt: "Prompt", negative_prompt: "Negative prompt", strength: "Change"};
const MOST = 100;   // cells

// "1, 2, 3", "20-50:10", or texts between ';'.
export function values_of(text, name) {
  if (["prompt", "negative_prompt"].includes(name)) return text.split(";").map(t => t.trim()).filter(Boolean);
  return text.split(",").map(t => t.trim()).filter(Boolean).flatMap(one => {
    const range = /^(-?[\d.]+)-([\d.]+)(?::([\d.]+))?$/.exec(one);
    if (!range) return [one];
    const [from, to, step] = [Number(range[1]), Number(range[2]), Number(range[3] ?? 1)];
    if (!(step > 0) || (to - from) / step > MOST) return [one];
    return Array.from({length: Math.floor((to - from) / step + 1e-9) + 1}, (_, i) => String(+(from + i * step).toFixed(6)));
  });
}

export function grid_panel(form) {
  const axis = label => {
    const name = h("select", {"aria-label": `${label}: what changes`},
      Object.entries(AXES).map(([value, text]) => h("option", {value}, text)));
    const values = h("input", {type: "text", "aria-label": `${label}: its values`, placeholder: "10, 20, 30 or 10-30:10"});
    return {name, values, row: h("div.row", {}, h("span.soft", {}, label), name, values)};
  };
  const x = axis("X"), y = axis("Y"), cells = h("div.cells", {tabIndex: 0, role: "region", "aria-label": "Grid"});
  const wrong = h("p.error", {role: "alert"});
  let grid = {xs: [], ys: [], jobs: []};

  const cell_of = job => {
    const cell = h("td");
    if (!job) return cell;
    const p = job.pictures?.[0];
    if (!p) cell.textContent = job.state === "failed" ? job.error : job.state ?? "...";
    else {
      const open = button("", () => show_picture(p.id, form));
      open.append(h("img", {src: `/api/v1/pictures/${p.id}/thumbnail`, alt: `${job.request.prompt}, seed ${p.seed}`}));
      cell.append(open);
    }
    return cell;
  };
  const draw = () => {
    cells.hidden = !grid.jobs.length;
    cells.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, h("td"), grid.xs.map(v => h("th", {scope: "col"}, v)))),
      h("tbody", {}, grid.ys.map((v, r) => h("tr", {}, h("th", {scope: "row"}, v),
        grid.xs.map((_, c) => cell_of(grid.shown?.[r * grid.xs.length + c])))))));
  };
  const keep = () => sessionStorage.setItem("grid", JSON.stringify({xs: grid.xs, ys: grid.ys, jobs: grid.jobs}));
  const look = async id => {
    const at = grid.jobs.indexOf(id);
    if (at < 0) return;
    try { grid.shown[at] = newer(grid.shown[at], await ask(`/api/v1/jobs/${encodeURIComponent(id)}`)); } catch { return; }
    draw();
  };
  const make = async () => {
    wrong.textContent = "";
    const xs = x.name.value ? values_of(x.values.value, x.name.value) : [""];
    const ys = y.name.value ? values_of(y.values.value, y.name.value) : [""];
    if (!xs.length || !ys.length || xs.length * ys.length > MOST || (!x.name.value && !y.name.value))
      return void (wrong.textContent = `A grid needs values, and has at most ${MOST} cells.`);
    grid = {xs, ys, jobs: [], shown: []};
    const seed = form.inputs.seed.value || String(Math.floor(Math.random() * 2 ** 32));
    try {
      for (const v of ys)
        for (const u of xs) {
          const instead = {seed, count: 1};
          if (y.name.value) instead[y.name.value] = v;
          if (x.name.value) instead[x.name.value] = u;
          const job = await form.submit(instead);
          grid.jobs.push(job.id), grid.shown.push(job);
          keep();
          draw();
        }
    } catch (e) { wrong.textContent = `${e.message} (${grid.jobs.length} of ${xs.length * ys.length} were sent)`; }
  };
  news.addEventListener("job", ({detail}) => {
    if (["picture", "done", "failed", "cancelled", "started"].includes(detail.event)) look(detail.job);
  });
  news.addEventListener("resync", () => {
    if (!grid.jobs.length) {
      try { grid = {...grid, ...JSON.parse(sessionStorage.getItem("grid") ?? "{}"), shown: []}; } catch { return; }
    }
    for (const id of grid.jobs) look(id);
  });
  draw();
  return h("details", {}, h("summary", {}, "X/Y grid"), x.row, y.row, h("div.row", {}, button("Make the grid", make),
    button("Cancel the grid", () => {
      for (const id of grid.jobs) ask(`/api/v1/jobs/${id}`, undefined, "DELETE").catch(e => say(e.message));
    })), wrong, cells);
}
