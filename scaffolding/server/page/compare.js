// Two pictures one over the other, with an edge between them that moves.
import {button, dialog, each_frame, h} from "./dom.js";

export function compare_pictures(a, b) {
  const over = h("img", {src: b.url ?? `/api/v1/pictures/${b.id}`, alt: "Right: " + (b.prompt || b.id), draggable: false});
  const edge = h("input", {type: "range", min: 0, max: 100, step: 0.1, value: 50, "aria-label": "Where the second begins"});
  const cut = each_frame(() => { over.style.clipPath = `inset(0 0 0 ${edge.value}%)`; });
  edge.addEventListener("input", cut);
  cut();
  const both = h("div.compare", {}, h("img", {src: a.url ?? `/api/v1/pictures/${a.id}`, draggable: false,
    alt: "Left: " + (a.prompt || a.id)}), over);
  const follow = e => {
    if (e.type === "pointermove" && !e.buttons) return;
    const box = both.getBoundingClientRect();
    edge.value = 100 * (e.clientX - box.left) / box.width;
    cut();
  };
  both.addEventListener("pointerdown", follow);
  both.addEventListener("pointermove", follow);
  both.style.touchAction = "pan-y";
  const view = dialog("Comparison", both, h("div.row", {}, h("span.soft", {}, `seed ${a.seed}`), edge,
    h("span.soft", {}, `seed ${b.seed}`), button("Close", () => view.close(), {className: "main"})));
  edge.focus();
}
