// <sf-picture-input>: a picture that is dropped, pasted or chosen: what it says about how it was made, and what a job
// begins with. With a brush a mask is painted on it: by mouse, pen and finger, or by the keys.
import {ask} from "./api.js";
import {base64_of, button, capture, clamp, each_frame, h, say} from "./dom.js";
import * as settings from "./settings.js";

const MOST_BYTES = 40 << 20, MOST_SIDE = 16384;

export class PictureInput extends HTMLElement {
  strokes = [];   // {erase, points: [[x, y, width], ...]} in the picture's pixels
  undone = [];
  can_mask = true;

  constructor(changed) {
    super();
    this.changed = changed;
  }

  connectedCallback() {
    if (this.zone) return;
    const file = h("input", {type: "file", accept: "image/*", "aria-label": "Picture to begin with",
      onchange: () => { if (file.files[0]) this.dropped(file.files[0]); file.value = ""; }});
    this.image = h("img", {alt: "The picture that is begun with"});
    this.canvas = h("canvas", {tabIndex: 0, role: "application", "aria-label":
      "Mask: arrow keys move the brush, Space paints, E erases, brackets change its size, Ctrl+Z takes back"});
    this.size = h("input", {type: "range", min: 1, max: 200, value: 40, "aria-label": "Brush"});
    this.erase = button("Erase", () => this.set_erase(), {"aria-pressed": "false"});
    this.tools = h("div", {}, h("div.row", {}, h("span.soft", {}, "Brush"), this.size, this.erase,
      button("Undo", () => this.undo()), button("Redo", () => this.redo()), button("Clear", () => this.clear())));
    this.loaded = h("div", {hidden: true}, h("div.paint", {}, this.image, this.canvas), this.tools,
      button("Without it", () => this.take(null)));
    this.told = h("div", {hidden: true});
    this.zone = h("div.drop", {}, h("label.tall", {}, h("span", {}, "Begin with a picture, or read its settings: drop it here"),
      file), this.told, this.loaded);
    this.append(this.zone);
    for (const kind of ["dragover", "dragleave", "drop"])
      document.addEventListener(kind, e => {
        if (this.hidden || this.closest("[hidden]") || ![...e.dataTransfer.types].includes("Files")) return;
        e.preventDefault();
        this.zone.classList.toggle("over", kind === "dragover");
        if (kind === "drop" && e.dataTransfer.files[0]) this.dropped(e.dataTransfer.files[0]);
      });
    document.addEventListener("paste", e => {
      const pasted = [...e.clipboardData.files].find(f => f.type.startsWith("image/"));
      if (pasted && !this.closest("[hidden]")) this.dropped(pasted);
    });
    this.draw = each_frame(() => this.paint());
    for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel"])
      this.canvas.addEventListener(kind, e => this.pointer(e));
    this.canvas.addEventListener("keydown", e => this.key(e));
  }

  // What the server's reader finds in the file, shown as text; and whether it is to be begun with.
  async dropped(file) {
    this.told.hidden = false;
    if (file.size > MOST_BYTES) return this.told.replaceChildren(h("p.error", {}, "The file is larger than 40 MB."));
    this.told.replaceChildren(h("p.soft", {}, "Looking at it ..."));
    try {
      const {items} = await ask("/sdapi/v1/png-info", {image: await base64_of(file)});
      const found = settings.of_texts(items), text = Object.entries(items).map(([k, v]) => `${k}: ${v}`).join("\n");
      const has = Object.keys(found).length > 0;
      this.told.replaceChildren(h("div.row", {},
        has ? button("Use its settings", () => { settings.use(found); say("Settings taken over"); }, {className: "main"}) : [],
        button("Begin with it", () => this.take(file)), button("Close", () => { this.told.hidden = true; })),
      h("p.soft", {}, `${file.name}: ${has ? "it says how it was made" : "it says nothing about how it was made"}`),
      text ? h("pre", {tabIndex: 0, "aria-label": "What the file says"}, text.slice(0, 20000)) : []);
    } catch (e) {
      this.told.replaceChildren(h("p.error", {}, `${file.name} cannot be used: ${e.message}`));
    }
  }

  // The picture that jobs begin with; null: none.
  take(blob) {
    if (this.image.src) URL.revokeObjectURL(this.image.src);
    this.blob = blob;
    this.strokes = [], this.undone = [];
    this.told.hidden = true;
    this.loaded.hidden = !blob;
    this.changed();
    if (!blob) return this.image.removeAttribute("src");
    this.image.onerror = () => { this.take(null); say("This picture cannot be shown"); };
    this.image.onload = () => {
      const {naturalWidth: w, naturalHeight: t} = this.image;
      if (w > MOST_SIDE || t > MOST_SIDE) return this.image.onerror();
      this.canvas.width = w, this.canvas.height = t;
      this.cross = [w / 2, t / 2];
      this.tools.hidden = this.canvas.hidden = !this.can_mask;
      this.draw();
    };
    this.image.src = URL.createObjectURL(blob);
  }

  base64() { return base64_of(this.blob); }

  // White where it is made anew, as base64; "" where nothing is.
  async mask() {
    if (!this.can_mask || !this.strokes.some(s => !s.erase)) return "";
    const made = new OffscreenCanvas(this.canvas.width, this.canvas.height), to = made.getContext("2d");
    to.fillStyle = "#000";
    to.fillRect(0, 0, made.width, made.height);
    for (const s of this.strokes) stroke(to, s, 0, s.erase ? "#000" : "#fff");
    return base64_of(await made.convertToBlob());
  }

  place(e) {
    const box = this.canvas.getBoundingClientRect(), scale = this.canvas.width / box.width;
    const press = e.pointerType === "pen" && e.pressure ? 0.4 + 1.2 * e.pressure : 1;
    return [(e.clientX - box.left) * scale, (e.clientY - box.top) * scale, this.size.value * scale * press];
  }

  pointer(e) {
    if (e.type === "pointerdown" && e.button === 0 && !this.current) {
      e.preventDefault();
      this.canvas.focus({preventScroll: true});
      capture(this.canvas, e);
      this.begin(this.place(e), e.pointerId);
    } else if (e.pointerId === this.current?.pointer) {
      if (e.type === "pointermove") {
        const all = e.getCoalescedEvents?.() ?? [];
        for (const one of all.length ? all : [e]) this.current.points.push(this.place(one));
        this.draw();
      } else this.current = undefined;
    }
  }

  begin(point, pointer) {
    this.current = {erase: this.erase.getAttribute("aria-pressed") === "true", points: [point], drawn: 0, pointer};
    this.strokes.push(this.current);
    this.undone = [];
    this.draw();
  }

  // What is new of the stroke that is being made, or everything where a stroke went.
  paint() {
    const to = this.canvas.getContext("2d");
    if (this.stale !== false) to.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const s of this.strokes) {
      if (this.stale !== false) s.drawn = 0;
      to.globalCompositeOperation = s.erase ? "destination-out" : "source-over";
      if (s.drawn < s.points.length) stroke(to, s, s.drawn, getComputedStyle(this).getPropertyValue("--mask"));
      s.drawn = s.points.length;
    }
    this.canvas.style.opacity = 0.55;
    this.stale = false;
  }

  redrawn() { this.stale = true; this.draw(); }
  undo() { if (this.strokes.length) this.undone.push(this.strokes.pop()), this.redrawn(); }
  redo() { if (this.undone.length) this.strokes.push(this.undone.pop()), this.redrawn(); }
  clear() { this.strokes = [], this.undone = [], this.redrawn(); }
  set_erase() { this.erase.setAttribute("aria-pressed", this.erase.getAttribute("aria-pressed") !== "true"); }

  key(e) {
    const far = (e.shiftKey ? 4 : 1) * this.canvas.width / 64, moves = {ArrowLeft: [-far, 0], ArrowRight: [far, 0],
      ArrowUp: [0, -far], ArrowDown: [0, far]};
    const scale = this.canvas.width / this.canvas.getBoundingClientRect().width;
    if (moves[e.key]) {
      this.cross = [clamp(this.cross[0] + moves[e.key][0], 0, this.canvas.width),
        clamp(this.cross[1] + moves[e.key][1], 0, this.canvas.height)];
      say(`${Math.round(this.cross[0])}, ${Math.round(this.cross[1])}`);
    } else if (e.key === " ") {
      this.begin([...this.cross, this.size.value * scale]);
      this.current = undefined;
    } else if (e.key === "[" || e.key === "]") {
      this.size.value = Number(this.size.value) * (e.key === "[" ? 0.8 : 1.25);
    } else if (e.key === "e") {
      this.set_erase();
    } else if (e.key.toLowerCase() === "z" && (e.ctrlKey || e.metaKey)) {
      if (e.shiftKey) this.redo();
      else this.undo();
    } else if (e.key === "y" && (e.ctrlKey || e.metaKey)) {
      this.redo();
    } else return;
    e.preventDefault();
  }
}

function stroke(to, {points}, from, colour) {
  to.strokeStyle = to.fillStyle = colour;
  to.lineCap = to.lineJoin = "round";
  if (points.length === 1) {
    to.beginPath();
    to.arc(points[0][0], points[0][1], points[0][2] / 2, 0, 2 * Math.PI);
    to.fill();
  }
  for (let i = Math.max(1, from); i < points.length; ++i) {
    to.beginPath();
    to.lineWidth = points[i][2];
    to.moveTo(points[i - 1][0], points[i - 1][1]);
    to.lineTo(points[i][0], points[i][1]);
    to.stroke();
  }
}

customElements.define("sf-picture-input", PictureInput);
