// Elements from plain values. Text is text: nothing here takes markup, and the page's policy forbids it besides.

// h("button.main", {type: "button", onclick: f, "aria-label": "..."}, "text", child, ...)
export function h(kind, properties = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for" || name === "list") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.flat().filter(c => c !== undefined && c !== null));
  return element;
}

export const button = (text, onclick, more = {}) => h("button", {type: "button", onclick, ...more}, text);

let silence;
// What somebody who does not see the screen is told too.
export function say(text) {
  document.getElementById("said").textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => { document.getElementById("said").textContent = ""; }, 6000);
}

// f, at most once in so many milliseconds, with the last arguments.
export function seldom(ms, f) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => f(...given), ms);
  };
}

// f once before the next picture of the screen, however often it is asked for.
export function each_frame(f) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; f(); });
  };
}

export const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

export function base64_of(blob) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => failed(new Error("the file cannot be read"));
    reader.readAsDataURL(blob);
  });
}

// Moves of this pointer come here until it is up; one that is up already has none.
export function capture(element, e) {
  try { element.setPointerCapture(e.pointerId); } catch { /* it is gone */ }
}

// A dialog that is gone from the page once it is closed; the focus goes back by itself.
export function dialog(title, ...children) {
  const shown = h("dialog", {"aria-label": title, onclose: () => shown.remove()}, ...children);
  document.body.append(shown);
  shown.showModal();
  return shown;
}
