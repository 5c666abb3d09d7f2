// The form's values: kept in the browser, one by one, so that windows that change different ones do not undo each
// other's, and what one changes shows in the others.
const PREFIX = "scaffolding.";

export const changes = new EventTarget();   // "change": detail {name, value}, from another window or from set()

export const get = name => localStorage.getItem(PREFIX + name) ?? "";

export function keep(name, value) {
  if (value === "") localStorage.removeItem(PREFIX + name);
  else localStorage.setItem(PREFIX + name, value);
}

export function set(name, value) {
  keep(name, value);
  changes.dispatchEvent(new CustomEvent("change", {detail: {name, value}}));
}

addEventListener("storage", e => {
  if (e.key?.startsWith(PREFIX))
    changes.dispatchEvent(new CustomEvent("change", {detail: {name: e.key.slice(PREFIX.length), value: e.newValue ?? ""}}));
});

// Settings of strangers: what a picture says about itself. Only known names, of their kind, and of bounded length pass.
const NUMBERS = ["steps", "guidance", "width", "height", "seed", "strength", "hires", "hires_strength", "hires_steps",
  "mask_blur", "fps", "num_frames", "clip_skip"];
const TEXTS = ["prompt", "negative_prompt", "model", "sampler", "vae", "trajectory_points"];

function known(found) {
  const out = {};
  for (const name of NUMBERS) {
    const value = ["number", "string"].includes(typeof found[name]) && found[name] !== "" ? Number(found[name]) : NaN;
    if (Number.isFinite(value) && Math.abs(value) < 1e16) out[name] = String(value);
  }
  for (const name of TEXTS)
    if (typeof found[name] === "string" && found[name].length <= 20000) out[name] = found[name];
  return out;
}

// As AUTOMATIC1111 writes it: the prompt, "Negative prompt: ...", and "Steps: 20, Sampler: Euler a, ...".
function of_parameters(text) {
  const lines = text.slice(0, 50000).split("\n"), out = {prompt: "", negative_prompt: ""};
  const last = /^\s*Steps: \d+,/.test(lines[lines.length - 1]) ? lines.pop() : "";
  let into = "prompt";
  for (let line of lines) {
    if (line.startsWith("Negative prompt: ")) into = "negative_prompt", line = line.slice(17);
    out[into] += (out[into] ? "\n" : "") + line;
  }
  const names = {Steps: "steps", Sampler: "sampler", "CFG scale": "guidance", Seed: "seed", Model: "model",
    "Denoising strength": "strength", "Hires upscale": "hires", "Clip skip": "clip_skip"};
  for (const [, key, quoted, plain] of last.matchAll(/\s*([\w ]+): (?:"((?:\\.|[^"\\])*)"|([^,]*))(?:,|$)/g)) {
    const value = quoted ?? plain;
    if (Object.hasOwn(names, key)) out[names[key]] = value;
    const size = key === "Size" && /^(\d+)x(\d+)$/.exec(value);
    if (size) out.width = size[1], out.height = size[2];
  }
  return out;
}

// Of a file's texts by their keywords; {} where they say nothing.
export function of_texts(texts) {
  try {
    const ours = JSON.parse(texts.scaffolding ?? "");
    if (ours && typeof ours === "object") return known({...ours.options, ...ours});
  } catch { /* another program's, or nobody's */ }
  return typeof texts.parameters === "string" ? known(of_parameters(texts.parameters)) : {};
}

export const of_job = request => known({...request.options, ...request});

export function use(found) {
  for (const [name, value] of Object.entries(found)) set(name, value);
}
