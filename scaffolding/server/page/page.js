// The page's frame: views, theme, who is signed in, whether the server is there.
import {ask, listen, news} from "./api.js";
import {button, h, say} from "./dom.js";
import * as settings from "./settings.js";
import "./create.js";
import "./gallery.js";

const VIEWS = [["create", "Create"], ["gallery", "Gallery"], ["runs", "Runs"]];
const views = document.getElementById("views"), tabs = document.getElementById("tabs");
const connection = document.getElementById("connection"), theme = document.getElementById("theme");

function dress() {
  const now = settings.get("theme");
  if (now) document.documentElement.dataset.theme = now;
  else delete document.documentElement.dataset.theme;
  theme.textContent = {light: "Light", dark: "Dark"}[now] ?? "As the system";
  theme.setAttribute("aria-label", `Colours: ${theme.textContent}`);
}
theme.onclick = () => settings.set("theme", {"": "dark", dark: "light", light: ""}[settings.get("theme")] ?? "");
settings.changes.addEventListener("change", e => { if (e.detail.name === "theme") dress(); });
dress();

async function show() {
  const wanted = location.hash.slice(1), name = VIEWS.some(([n]) => n === wanted) ? wanted : "create";
  if (name === "runs") await import("./runs.js");
  for (const [n] of VIEWS) {
    const view = views.querySelector(`sf-${n}`), tab = document.getElementById(`tab-${n}`);
    if (!view) continue;
    view.hidden = n !== name;
    tab.setAttribute("aria-selected", n === name);
    tab.tabIndex = n === name ? 0 : -1;
  }
  views.querySelector(`sf-${name}`)?.shown?.();
}
addEventListener("hashchange", show);
tabs.addEventListener("keydown", e => {
  const by = {ArrowRight: 1, ArrowLeft: -1}[e.key];
  if (!by) return;
  const all = [...tabs.children], next = all[(all.indexOf(document.activeElement) + by + all.length) % all.length];
  next.focus();
  next.click();
});

news.addEventListener("connection", ({detail}) => {
  connection.className = detail ? "" : "bad";
  connection.textContent = detail ? "" : "The server is away; the page goes on when it is back";
});
news.addEventListener("signed out", () => { if (!views.querySelector("sf-login")) begin(); });

function sign_in() {
  const token = h("input", {type: "password", autocomplete: "current-password", required: true, id: "token"});
  const wrong = h("p.error", {role: "alert"});
  views.replaceChildren(h("sf-login", {}, h("h2", {}, "Sign in"), h("form", {onsubmit: async e => {
    e.preventDefault();
    try {
      await ask("/api/v1/session", {token: token.value});
      begin();
    } catch (error) { wrong.textContent = error.message; }
  }}, h("label", {}, h("span", {}, "Token"), token), h("div.row", {}, button("Sign in", undefined, {type: "submit", className: "main"}))), wrong));
  tabs.replaceChildren();
  token.focus();
}

async function begin() {
  let session;
  try {
    session = await ask("/api/v1/session");
  } catch (e) {
    connection.className = "bad";
    connection.textContent = e.message;
    return setTimeout(begin, 2000);
  }
  connection.textContent = "";
  const leave = document.getElementById("leave");
  leave.hidden = !session.tokens || !session.signed_in;
  leave.onclick = () => ask("/api/v1/session", undefined, "DELETE").then(() => location.reload(), e => say(e.message));
  if (!session.signed_in) return sign_in();
  tabs.replaceChildren(...VIEWS.map(([name, text]) => h("button", {type: "button", role: "tab", id: `tab-${name}`,
    "aria-controls": `view-${name}`, onclick: () => { location.hash = name; }}, text)));
  views.replaceChildren(...VIEWS.map(([name]) => h(`sf-${name}`, {id: `view-${name}`, role: "tabpanel",
    "aria-labelledby": `tab-${name}`, hidden: true})));
  await show();
  listen();
  views.querySelector("sf-create").offer(session.limits).catch(e => say(e.message));
}
begin();
