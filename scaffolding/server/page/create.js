// <sf-create>: what to make, what is being made, and the queue.
import {ask, news} from "./api.js";
import {button, h, say} from "./dom.js";
import {show_picture} from "./viewer.js";
import {is_over, jobs_list, job_of, newer, submit} from "./jobs.js";
import * as settings from "./settings.js";
import {PictureInput} from "./picture_input.js";
import {Trajectory} from "./trajectory.js";
import {grid_panel} from "./grid.js";

// Form names and the API's, where they differ.
const API = {steps: "num_inference_steps", guidance: "guidance_scale"};

class Create extends HTMLElement {
  inputs = {};

  connectedCallback() {
    if (this.form) return;
    this.picture = new PictureInput(() => this.suit());
    this.path = new Trajectory();
    this.make_button = button("Make", undefined, {type: "submit", className: "main"});
    this.wrong = h("p.error", {id: "wrong", role: "alert"});
    const number = (name, text, least, most, more = {}) => this.field(name, text,
      h("input", {type: "number", min: least, max: most, ...more}));
    const slider = (name, text, least, most, step, usual) => this.slider(name, text, least, most, step, usual);
    this.form = h("form", {onsubmit: e => { e.preventDefault(); this.make(); }, "aria-label": "What to make"},
      this.field("prompt", "Prompt", h("textarea", {rows: 4, maxLength: 20000,
        onkeydown: e => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) e.preventDefault(), this.make(); }}), "tall"),
      this.field("negative_prompt", "Negative prompt", h("textarea", {rows: 2, maxLength: 20000}), "tall"),
      h("div.row", {}, this.make_button, button("Cancel", () => this.cancel(), {id: "cancel", disabled: true}),
        h("span.soft", {}, "Ctrl+Enter makes too")),
      this.wrong,
      this.field("model", "Model", h("select")),
      this.field("sampler", "Sampler", h("select")),
      slider("steps", "Steps", 1, 150, 1, 20),
      slider("guidance", "Guidance", 0, 30, 0.1, ""),
      h("div.row", {}, number("width", "Width", 8, 16384, {step: 8, placeholder: "model's"}),
        number("height", "Height", 8, 16384, {step: 8, placeholder: "model's"}),
        button("Swap", () => {
          const [w, t] = [this.inputs.width.value, this.inputs.height.value];
          settings.set("width", t), settings.set("height", w);
        }, {"aria-label": "Swap width and height"})),
      h("div.row", {}, number("seed", "Seed", 0, 2 ** 53, {placeholder: "drawn"}),
        button("The last one's", () => this.last_seed !== undefined && settings.set("seed", String(this.last_seed))),
        button("Draw", () => settings.set("seed", ""))),
      number("count", "Pictures", 1, 64, {placeholder: "1"}),
      h("details", {}, h("summary", {}, "More"),
        this.field("vae", "Autoencoder", h("select")),
        this.lora = this.field("lora", "LoRA", h("select", {onchange: e => this.add_lora(e.target)})),
        number("clip_skip", "CLIP skip", 0, 12), number("hires", "Larger by", 1, 8, {step: 0.1}),
        slider("hires_strength", "Then change", 0, 1, 0.05, 0.7)),
      this.picture,
      this.with_picture = h("div", {hidden: true},
        slider("strength", "Change", 0, 1, 0.01, 0.75), slider("mask_blur", "Soft edge", 0, 64, 1, 4),
        this.field("mask_fill", "Under the mask", h("select", {},
          ["original", "around", "noise", "nothing"].map(v => h("option", {value: v}, v)))),
        number("padding_mask_crop", "Only around it", 0, 4096, {placeholder: "whole picture"})),
      this.clips = h("div", {hidden: true}, h("h2", {}, "Clip"),
        number("num_frames", "Frames", 1, 256), number("fps", "Frames a second", 0.1, 100, {step: 0.1, placeholder: "8"}),
        this.field("format", "File", h("select", {},
          ["webp", "gif", "mp4", "webm", "png"].map(v => h("option", {value: v}, v)))), this.path));
    this.stage = h("div", {id: "stage"});
    this.append(this.form, h("div", {},
      h("h2", {}, "Result"), this.stage, h("h2", {}, "Queue"), jobs_list(), grid_panel(this)));
    settings.changes.addEventListener("change", e => this.changed(e.detail));
    news.addEventListener("job", e => this.told(e.detail));
    news.addEventListener("resync", () => this.catch_up());
    for (const name of Object.keys(this.inputs)) this.changed({name, value: settings.get(name)});
  }

  register(name, input) {
    input.name = name;
    this.inputs[name] = input;
    input.addEventListener("input", () => {
      settings.keep(name, input.value);
      if (name === "model") this.suit();
    });
    return input;
  }

  field(name, text, input, kind = "") {
    return h("label" + (kind && "." + kind), {}, h("span", {}, text), this.register(name, input));
  }

  // Both show the same value; the number may be emptied, where the model decides then.
  slider(name, text, least, most, step, usual) {
    const range = h("input", {type: "range", min: least, max: most, step, "aria-label": text});
    const exact = this.register(name, h("input", {type: "number", min: least, max: most, step: "any",
      placeholder: usual === "" ? "model's" : usual, "aria-label": text + ", exactly"}));
    range.addEventListener("input", () => { exact.value = range.value; settings.keep(name, range.value); });
    exact.follow = () => { range.value = exact.value || usual || 5; };
    exact.addEventListener("input", exact.follow);
    exact.follow();
    return h("div.field", {}, h("span.name", {"aria-hidden": "true"}, text), range, exact);
  }

  changed({name, value}) {
    const input = this.inputs[name];
    if (!input) {
      if (name === "trajectory_points") this.path.read(value);
      return;
    }
    if (input.tagName === "SELECT" && value && ![...input.options].some(o => o.value === value)) {
      if (name !== "sampler") return;   // which goes by other programs' names too
      input.append(h("option", {value}, value));
    }
    if (input.value !== value) input.value = value;
    if (value && input.closest("details")) input.closest("details").open = true;
    if (input.tagName === "SELECT" && input.selectedIndex < 0) input.selectedIndex = 0;
    input.follow?.();
    if (name === "model") this.suit();
  }

  async offer(limits) {
    const [{models, loras, vaes, refused}, {samplers}] = await Promise.all([ask("/api/v1/models"), ask("/api/v1/samplers")]);
    this.models = models;
    const fill = (name, first, values) => {
      this.inputs[name].replaceChildren(...first, ...values.map(v => h("option", {value: v}, v)));
      this.changed({name, value: settings.get(name)});
    };
    const usual = models.find(m => m.default)?.name ?? "";
    fill("sampler", [h("option", {value: ""}, "the model's own")], samplers);
    fill("vae", [h("option", {value: ""}, "the model's own")], vaes);
    fill("lora", [h("option", {value: ""}, "add one ...")], loras);
    fill("model", [h("option", {value: ""}, `${usual} (the usual)`)], models.map(m => m.name));
    this.lora.hidden = !loras.length;
    this.inputs.count.max = limits.pictures, this.inputs.num_frames.max = limits.frames;
    this.inputs.steps.max = limits.steps;
    this.inputs.model.title = Object.entries(refused).map(([name, why]) => `${name}: ${why}`).join("\n");
    this.suit();
  }

  model() {
    const name = this.inputs.model.value;
    return this.models?.find(m => name ? m.name === name : m.default);
  }

  // What the model does not take is not shown.
  suit() {
    const tasks = this.model()?.tasks ?? [], any = tasks.length === 0;
    const has = (...names) => any || names.some(n => tasks.includes(n));
    this.clips.hidden = !has("text-to-video", "image-to-video") || any;
    this.path.hidden = !/Tora/.test(this.model()?.pipeline ?? "");
    this.picture.hidden = !has("image-to-image", "inpainting", "image-to-video");
    this.picture.can_mask = has("inpainting");
    this.with_picture.hidden = !this.picture.blob || this.picture.hidden || !this.clips.hidden;
  }

  add_lora(select) {
    if (select.value) settings.set("prompt", `${this.inputs.prompt.value} <lora:${select.value}:1>`.trim());
    select.value = "";
    settings.keep("lora", "");
  }

  // A job as the API takes it, from the form and what a cell of a grid says instead.
  async request(instead = {}) {
    const job = {}, clip = !this.clips.hidden, picture = !this.picture.hidden && this.picture.blob;
    const of_picture = ["strength"], of_mask = ["mask_blur", "mask_fill", "padding_mask_crop"];
    const of_clip = ["num_frames", "fps", "format"];
    const mask = picture && !clip ? await this.picture.mask() : "";
    for (const [name, input] of Object.entries(this.inputs)) {
      const value = instead[name] ?? input.value;
      if (value === "" || name === "lora") continue;
      if (of_picture.includes(name) && (!picture || clip)) continue;
      if (of_mask.includes(name) && !mask) continue;
      if (of_clip.includes(name) && !clip) continue;
      if (name.startsWith("hires") && (picture || clip || !(instead.hires ?? this.inputs.hires.value))) continue;
      const words = input.tagName === "SELECT" || input.tagName === "TEXTAREA";
      job[API[name] ?? name] = words ? String(value) : Number(value);
    }
    if (picture) job.image = await this.picture.base64();
    if (mask) job.mask_image = mask;
    if (clip && !this.path.hidden && this.path.points().length) job.trajectory_points = this.path.points();
    return job;
  }

  async submit(instead) { return submit(await this.request(instead)); }

  async make() {
    this.wrong.textContent = "";
    this.make_button.disabled = true;
    try {
      this.watch(await this.submit());
    } catch (e) {
      this.wrong.textContent = e.message;
      const at = Object.keys(this.inputs).find(name => (API[name] ?? name) === e.field);
      if (at) this.inputs[at].focus();
    } finally {
      this.make_button.disabled = false;
    }
  }

  cancel() {
    if (this.job) ask(`/api/v1/jobs/${this.job.id}`, undefined, "DELETE").catch(e => say(e.message));
  }

  watch(job) {
    this.job = job;
    sessionStorage.setItem("job", job.id);
    this.last_seed = job.request.seed;
    this.preview = h("img.preview", {alt: "", hidden: true});
    this.bar = h("progress", {max: 1, value: job.progress, "aria-label": "Progress"});
    this.stage.replaceChildren(this.bar, this.state = h("p.soft"), this.preview);
    this.show(job);
  }

  show(job) {
    job = this.job = newer(this.job, job);
    const over = is_over(job);
    document.getElementById("cancel").disabled = over;
    this.bar.value = job.progress;
    this.bar.hidden = over;
    this.state.textContent = over ? {failed: job.error, cancelled: "cancelled"}[job.state] ?? "" :
      job.state === "waiting" ? `waits behind ${job.queue_place ?? 0}` :
        `step ${job.step} of ${job.steps || "?"}` + (job.seconds_left === null ? "" : `, ${Math.ceil(job.seconds_left)} s left`);
    this.state.className = job.state === "failed" ? "error" : "soft";
    this.preview.hidden = over || !this.preview.src;
    const shown = this.stage.querySelectorAll("button").length;
    for (const p of job.pictures.slice(shown)) this.stage.append(this.result(job, p));
  }

  result(job, p) {
    const alt = `${job.request.prompt || "picture"}, seed ${p.seed}`;
    const open = () => show_picture(p.id, this);
    if (p.type.startsWith("video/"))
      return button("", open, {"aria-label": alt}).appendChild(
        h("video", {src: p.url, loop: true, muted: true, autoplay: true})).parentNode;
    const shown = button("", open);
    shown.append(p.type.startsWith("image/") ? h("img", {src: p.url, alt}) : h("span", {}, "A zip of frames"));
    return shown;
  }

  async told(event) {
    if (event.job !== this.job?.id) return;
    if (event.preview && event.event === "step") {
      this.preview.src = "data:image/png;base64," + event.preview;
      this.preview.alt = "The picture so far";
      this.preview.hidden = false;
    }
    const job = await job_of(event);
    if (job?.id === this.job.id) this.show(job);
    if (event.event === "done") say(`Done: ${job.pictures.length} of ${job.request.count}`);
    if (event.event === "failed") say(`The job failed: ${event.error ?? ""}`);
  }

  // After a reload, or when the server is back: the job goes on where it is.
  async catch_up() {
    const id = this.job?.id ?? sessionStorage.getItem("job");
    if (!id) return;
    try {
      const job = await ask(`/api/v1/jobs/${encodeURIComponent(id)}`);
      if (this.job?.id === id) this.show(job);
      else this.watch(job);
    } catch (e) {
      if (e.status === 404) sessionStorage.removeItem("job");
    }
  }

  begin_with(blob) { this.picture.take(blob); }
}
customElements.define("sf-create", Create);
