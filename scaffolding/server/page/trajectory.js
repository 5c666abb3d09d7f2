// <sf-trajectory>: where things of a clip go, drawn on a canvas of 256 by 256 (docs/trajectory.html has more of it).
import {button, capture, clamp, each_frame, h} from "./dom.js";

const SIDE = 256, MOST = 64;   // points of a path that a job is sent
const COLOURS = ["#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e"];

export class Trajectory extends HTMLElement {
  paths = [[]];   // of points [x, y]; a drag adds many

  connectedCallback() {
    if (this.canvas) return;
    this.canvas = h("canvas.alone", {width: SIDE, height: SIDE, tabIndex: 0, role: "application", "aria-label":
      "Trajectories, 256 by 256: arrow keys move the cross, Enter sets a point, N begins another, Backspace takes back"});
    this.told = h("p.soft", {role: "status"});
    this.append(h("h2", {}, "Trajectories"), h("div.paint", {}, this.canvas), h("div.row", {},
      button("Another", () => this.another()), button("Undo", () => this.undo()), button("Clear", () => this.clear())), this.told);
    this.draw = each_frame(() => this.paint());
    this.cross = [SIDE / 2, SIDE / 2];
    this.canvas.addEventListener("pointerdown", e => {
      e.preventDefault();
      capture(this.canvas, e);
      this.pointer = e.pointerId;
      this.add(this.place(e));
    });
    this.canvas.addEventListener("pointermove", e => {
      if (e.pointerId !== this.pointer) return;
      const all = e.getCoalescedEvents?.() ?? [];
      for (const one of all.length ? all : [e]) {
        const p = this.place(one), path = this.paths[this.paths.length - 1], last = path[path.length - 1];
        if (Math.hypot(p[0] - last[0], p[1] - last[1]) >= 4) this.add(p);
      }
    });
    for (const kind of ["pointerup", "pointercancel"])
      this.canvas.addEventListener(kind, () => { this.pointer = undefined; });
    this.canvas.addEventListener("keydown", e => this.key(e));
    this.draw();
  }

  place(e) {
    const box = this.canvas.getBoundingClientRect(), at = (v, from, size) => clamp(Math.round((v - from) / size * SIDE), 0, SIDE - 1);
    return [at(e.clientX, box.left, box.width), at(e.clientY, box.top, box.height)];
  }

  add(point) { this.paths[this.paths.length - 1].push(point); this.draw(); }
  another() { if (this.paths[this.paths.length - 1].length > 1) this.paths.push([]), this.draw(); }
  clear() { this.paths = [[]], this.draw(); }
  undo() {
    const path = this.paths[this.paths.length - 1];
    if (path.length) path.pop();
    else if (this.paths.length > 1) this.paths.pop();
    this.draw();
  }

  // "10,54 32,20; 4,4 8,8", as a job's settings have them.
  read(text) {
    const paths = text.split(";", 20).map(path => path.trim().split(/\s+/, 1000).map(p => p.split(",", 2).map(Number))
      .filter(p => p.length === 2 && p.every(v => v >= 0 && v < SIDE)));
    this.paths = paths.filter(p => p.length > 0);
    if (!this.paths.length) this.paths = [[]];
    this.draw();
  }

  // As the API takes them; a path of one point leads nowhere.
  points() {
    return this.paths.filter(p => p.length > 1).map(p => {
      if (p.length <= MOST) return p;
      return Array.from({length: MOST}, (_, i) => p[Math.round(i * (p.length - 1) / (MOST - 1))]);
    });
  }

  paint() {
    const to = this.canvas.getContext("2d");
    to.clearRect(0, 0, SIDE, SIDE);
    this.paths.forEach((path, i) => {
      to.strokeStyle = to.fillStyle = COLOURS[i % COLOURS.length];
      to.lineWidth = 3;
      to.beginPath();
      path.forEach(([x, y], k) => k ? to.lineTo(x, y) : to.moveTo(x, y));
      to.stroke();
      for (const [x, y] of path.length < 20 ? path : [path[0], path[path.length - 1]]) to.fillRect(x - 3, y - 3, 6, 6);
    });
    if (document.activeElement === this.canvas) {
      to.strokeStyle = "#888";
      to.lineWidth = 1;
      to.strokeRect(this.cross[0] - 5, this.cross[1] - 5, 10, 10);
    }
    this.told.textContent = `${this.points().length} trajectories, ${this.paths.flat().length} points`;
  }

  key(e) {
    const far = e.shiftKey ? 20 : 4, by = {ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, -far], ArrowDown: [0, far]}[e.key];
    if (by) this.cross = this.cross.map((v, i) => clamp(v + by[i], 0, SIDE - 1));
    else if (e.key === "Enter") this.add([...this.cross]);
    else if (e.key === "n") this.another();
    else if (e.key === "Backspace" || (e.key === "z" && e.ctrlKey)) this.undo();
    else return;
    e.preventDefault();
    this.draw();
  }
}
customElements.define("sf-trajectory", Trajectory);
