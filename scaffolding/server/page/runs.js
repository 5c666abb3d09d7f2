// <sf-runs>: training runs of the folders that --runs names, as they go on: curves, sample pictures, evaluations.
import {ask} from "./api.js";
import {button, clamp, each_frame, h} from "./dom.js";

const EVERY = 2000;   // milliseconds between two looks at what is new

// Columns of a stage's figures, which grow; at most so many points of each are drawn.
class Figures {
  steps = [];
  columns = new Map();   // name -> values, null where a step has none
  next = 0;

  add(lines) {
    for (const line of lines) {
      const at = this.steps.push(line.step) - 1;
      for (const [name, value] of Object.entries(line)) {
        if (name === "step" || name === "epoch") continue;
        if (!this.columns.has(name)) this.columns.set(name, []);
        this.columns.get(name)[at] = value;
      }
    }
  }
}

class Runs extends HTMLElement {
  figures = new Map();   // "run/stage" -> Figures
  charts = new Map();

  connectedCallback() {
    if (this.pick) return;
    this.pick = h("select", {"aria-label": "Run", onchange: () => { this.forget(); this.look(); }});
    this.logarithm = button("Logarithm", () => {
      this.logarithm.setAttribute("aria-pressed", this.logarithm.getAttribute("aria-pressed") !== "true");
      for (const chart of this.charts.values()) chart.draw();
    }, {"aria-pressed": "false"});
    this.none = h("p.soft", {}, "There is no run yet. scaffolding serve --runs FOLDER shows those of a folder.");
    this.curves = h("div.charts");
    this.samples = h("div", {id: "samples"});
    this.evaluations = h("div.cells", {tabIndex: 0, role: "region", "aria-label": "Evaluations"});
    this.append(h("div.row", {}, this.pick, this.logarithm), this.none, this.curves, this.samples, this.evaluations);
    document.addEventListener("visibilitychange", () => this.shown());
  }

  shown() {
    clearTimeout(this.timer);
    if (!this.hidden && !document.hidden && this.isConnected) this.look();
  }

  forget() {
    this.figures.clear();
    this.charts.clear();
    for (const part of [this.curves, this.samples, this.evaluations]) part.replaceChildren();
    this.newest = undefined;
  }

  async look() {
    clearTimeout(this.timer);
    try {
      const {runs} = await ask("/api/v1/runs");
      this.none.hidden = runs.length > 0;
      const names = runs.map(r => r.name);
      if (names.join("\n") !== [...this.pick.options].map(o => o.value).join("\n")) {
        const was = this.pick.value;
        this.pick.replaceChildren(...names.map(name => h("option", {value: name}, name)));
        this.pick.value = names.includes(was) ? was : runs.toSorted((a, b) => b.changed - a.changed)[0]?.name ?? "";
        if (this.pick.value !== was) this.forget();
      }
      const run = runs.find(r => r.name === this.pick.value);
      if (run) await this.show(run);
    } catch { /* the connection is told of; what is shown stays */ }
    if (!this.hidden && !document.hidden) this.timer = setTimeout(() => this.look(), EVERY);
  }

  async show(run) {
    for (const stage of run.stages) {
      const key = `${run.name}/${stage.name}`;
      if (!this.figures.has(key)) this.figures.set(key, new Figures());
      const figures = this.figures.get(key);
      if (figures.next === stage.bytes) continue;
      for (let more = true; more;) {
        const query = new URLSearchParams({name: stage.name, from: figures.next});
        const got = await ask(`/api/v1/runs/${encodeURIComponent(run.name)}/metrics?${query}`);
        if (got.again) figures.steps = [], figures.columns.clear();
        figures.add(got.lines);
        more = got.next > figures.next && got.next < got.size;
        figures.next = got.next;
      }
      const of = stage.name.includes("/") ? stage.name.slice(0, stage.name.indexOf("/")) + ": " : "";
      for (const name of figures.columns.keys()) {
        const id = `${key}/${name}`;
        if (!this.charts.has(id)) {
          const chart = new Chart(of + name, () => this.logarithm.getAttribute("aria-pressed") === "true");
          this.charts.set(id, chart);
          this.curves.append(chart.figure);
        }
        this.charts.get(id).set(figures.steps, figures.columns.get(name));
      }
    }
    this.show_samples(run);
    this.show_evaluations(run.evaluations);
  }

  show_samples(run) {
    const all = run.pictures.toSorted((a, b) => a.name < b.name ? -1 : 1), newest = all[all.length - 1];
    const mark = newest && `${all.length} ${newest.name} ${newest.changed}`;
    if (!newest || mark === this.newest) return;
    const at_end = !this.slider || !this.newest || Number(this.slider.value) === Number(this.slider.max);
    const was = this.slider?.value;
    this.newest = mark;
    const image = h("img", {alt: ""}), name = h("span.soft");
    this.slider = h("input", {type: "range", min: 0, max: all.length - 1, "aria-label": "Which sample picture"});
    this.slider.value = at_end ? all.length - 1 : was;
    const show = () => {
      const p = all[this.slider.value];
      name.textContent = p.name;
      image.src = `/api/v1/runs/${encodeURIComponent(run.name)}/picture?${new URLSearchParams({name: p.name, at: p.changed})}`;
      image.alt = `Samples: ${p.name}`;
    };
    this.slider.addEventListener("input", each_frame(show));
    this.samples.replaceChildren(h("h2", {}, "Sample pictures"), h("div.row", {}, this.slider, name), image);
    show();
  }

  show_evaluations(all) {
    const text = JSON.stringify(all);
    if (text === this.evaluated) return;
    this.evaluated = text;
    const rows = [];
    const walk = (value, path) => {
      if (rows.length > 500) return;
      if (value && typeof value === "object") for (const [k, v] of Object.entries(value)) walk(v, [...path, k]);
      else rows.push(h("tr", {}, h("th", {scope: "row"}, path.join(" ")), h("td", {}, String(value).slice(0, 200))));
    };
    walk(all, []);
    this.evaluations.replaceChildren(...(rows.length ? [h("h2", {}, "Evaluations"), h("table", {}, h("tbody", {}, rows))] : []));
  }
}

const short = v => Math.abs(v) >= 1e5 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : String(+v.toPrecision(4));

class Chart {
  constructor(title, logarithm) {
    this.logarithm = logarithm;
    this.canvas = h("canvas", {role: "img"});
    this.told = h("span");
    this.title = title;
    this.figure = h("figure", {}, h("figcaption.soft", {}, title + " ", this.told), this.canvas);
    this.draw = each_frame(() => this.paint());
    this.canvas.addEventListener("pointermove", e => {
      this.at = (e.clientX - this.canvas.getBoundingClientRect().left) / this.canvas.clientWidth;
      this.draw();
    });
    this.canvas.addEventListener("pointerleave", () => { this.at = undefined; this.draw(); });
    new ResizeObserver(this.draw).observe(this.canvas);
  }

  set(steps, values) {
    if (this.steps === steps && this.length === steps.length) return;
    this.steps = steps, this.values = values, this.length = steps.length;
    this.draw();
  }

  // Least and most of each column of pixels, so that a long run keeps its peaks.
  paint() {
    const scale = devicePixelRatio, w = Math.round(this.canvas.clientWidth * scale), t = Math.round(this.canvas.clientHeight * scale);
    if (!w || !this.steps) return;
    if (this.canvas.width !== w || this.canvas.height !== t) this.canvas.width = w, this.canvas.height = t;
    const points = [], of = this.logarithm() ? Math.log10 : v => v;
    for (let i = 0; i < this.steps.length; ++i) {
      const v = this.values[i];
      if (typeof v === "number" && Number.isFinite(of(v))) points.push([this.steps[i], of(v), v]);
    }
    const to = this.canvas.getContext("2d"), style = getComputedStyle(this.canvas);
    to.clearRect(0, 0, w, t);
    if (!points.length) return;
    let low = Infinity, high = -Infinity;
    for (const p of points) low = Math.min(low, p[1]), high = Math.max(high, p[1]);
    if (high === low) high = low + (Math.abs(low) || 1), low -= Math.abs(low) || 1;
    const first = points[0][0], last = Math.max(points[points.length - 1][0], first + 1), edge = 4 * scale;
    const x = step => edge + (step - first) / (last - first) * (w - 2 * edge), y = v => t - edge - (v - low) / (high - low) * (t - 2 * edge);
    to.strokeStyle = to.fillStyle = style.getPropertyValue("--accent");
    to.lineWidth = 1.5 * scale;
    to.beginPath();
    for (let i = 0; i < points.length;) {
      const column = Math.floor(x(points[i][0]));
      let least = points[i][1], most = least, end = least;
      const begin = least;
      for (; i < points.length && Math.floor(x(points[i][0])) === column; ++i)
        end = points[i][1], least = Math.min(least, end), most = Math.max(most, end);
      for (const v of [begin, least, most, end]) to.lineTo(column, y(v));
    }
    to.stroke();
    if (points.length === 1) to.fillRect(x(points[0][0]) - 3, y(points[0][1]) - 3, 6, 6);
    const shown = this.at === undefined ? points[points.length - 1] :
      points[clamp(Math.round(this.nearest(points, first + this.at * (last - first))), 0, points.length - 1)];
    to.fillRect(x(shown[0]) - 2 * scale, y(shown[1]) - 2 * scale, 4 * scale, 4 * scale);
    this.told.textContent = `${short(shown[2])} at ${shown[0]}`;
    this.canvas.setAttribute("aria-label", `${this.title}: ${short(points[0][2])} at first, ${short(points[points.length - 1][2])} at step ${points[points.length - 1][0]}`);
  }

  nearest(points, step) {
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
customElements.define("sf-runs", Runs);
