// <sf-gallery>: the pictures that the server keeps. Only those that are on the screen are elements; what is known of the
// others comes in pages when they are scrolled to.
import {ask, news} from "./api.js";
import {button, clamp, each_frame, h, say, seldom} from "./dom.js";
import {show_picture} from "./viewer.js";
import {compare_pictures} from "./compare.js";

const PAGE = 100, LEAST = 150;   // pictures; pixels of a side

class Gallery extends HTMLElement {
  pages = new Map();      // number -> pictures, or a promise of them
  cells = new Map();      // index -> element
  spare = [];
  chosen = new Map();     // id -> picture, of two that are compared
  total = 0;
  at = 0;                 // the index that the keyboard is at
  state = 0;              // what answers are of: another search makes those before it old

  connectedCallback() {
    if (this.scroller) return;
    const again = seldom(200, () => this.look_again(true));
    this.search = h("input", {type: "search", "aria-label": "Search in prompts", placeholder: "Search", oninput: again});
    this.favourites = button("Favourites", () => {
      this.favourites.setAttribute("aria-pressed", this.favourites.getAttribute("aria-pressed") !== "true");
      this.look_again(true);
    }, {"aria-pressed": "false"});
    this.pick = button("Compare", () => this.picking(this.pick.getAttribute("aria-pressed") !== "true"),
      {"aria-pressed": "false"});
    this.count = h("span.soft", {role: "status"});
    this.list = h("ul", {"aria-label": "Pictures"});
    this.scroller = h("div.scroll", {onscroll: each_frame(() => this.draw()), onkeydown: e => this.key(e)}, this.list);
    this.append(h("div.row", {}, this.search, this.favourites, this.pick, this.count), this.scroller);
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    news.addEventListener("job", e => { if (e.detail.event === "picture") again(); });
    news.addEventListener("resync", () => this.look_again(false));
    news.addEventListener("pictures", () => this.look_again(false));
  }

  look_again(to_top) {
    ++this.state;
    this.pages.clear();
    if (to_top === true && document.activeElement === this.search) this.scroller.scrollTop = 0, this.at = 0;
    this.stale = true;
    if (!this.hidden) this.page(0).then(() => { this.stale = false; this.draw(true); });
  }

  shown() { if (this.stale !== false) this.look_again(false); else this.draw(); }

  page(number) {
    if (!this.pages.has(number)) {
      const state = this.state;
      const query = new URLSearchParams({offset: number * PAGE, limit: PAGE, words: this.search.value,
        favourites: this.favourites.getAttribute("aria-pressed")});
      this.pages.set(number, ask(`/api/v1/pictures?${query}`).then(({total, pictures}) => {
        if (state !== this.state) return;
        this.total = total;
        this.count.textContent = total === 1 ? "1 picture" : `${total} pictures`;
        this.pages.set(number, pictures);
        this.drawn();
      }, e => { this.pages.delete(number); if (e.status !== 401) say(e.message); }));
    }
    return Promise.resolve(this.pages.get(number));
  }
  drawn = each_frame(() => this.draw(true));

  known(index) {
    const page = this.pages.get(Math.floor(index / PAGE));
    return Array.isArray(page) ? page[index % PAGE] : undefined;
  }

  draw(anew) {
    const width = this.scroller.clientWidth, height = this.scroller.clientHeight;
    if (!width || this.hidden) return;
    this.columns = Math.max(2, Math.floor(width / LEAST));
    const side = width / this.columns, rows = Math.ceil(this.total / this.columns);
    this.side = side;
    this.list.style.height = `${rows * side}px`;
    const top = this.scroller.scrollTop, first = Math.max(0, Math.floor(top / side) - 1) * this.columns;
    const end = Math.min(this.total, (Math.ceil((top + height) / side) + 1) * this.columns);
    for (const [index, cell] of this.cells)
      if (index < first || index >= end) this.cells.delete(index), cell.picture = undefined, this.spare.push(cell);
    for (let number = Math.floor(first / PAGE); number * PAGE < end; ++number) this.page(number);
    for (let index = first; index < end; ++index) {
      let cell = this.cells.get(index);
      const fresh = !cell;
      if (fresh) this.cells.set(index, cell = this.spare.pop() ?? this.cell());
      if (fresh || anew || cell.side !== side) this.fill(cell, index, side);
    }
    // What flies past is not asked for.
    const now = performance.now(), slow = Math.abs(top - (this.top ?? top)) < 0.15 * height;
    if (slow || now - this.moved > 150) this.load();
    else this.settled();
    if (top !== this.top) this.moved = now;
    this.top = top;
    for (const cell of this.spare) cell.remove();
    this.spare.length = Math.min(this.spare.length, 60);
  }

  settled = seldom(80, () => this.load());
  load() { for (const cell of this.cells.values()) if (cell.url && !cell.image.src) cell.image.src = cell.url; }

  cell() {
    const image = h("img", {alt: "", decoding: "async", draggable: true});
    const cell = h("li", {}, h("button", {type: "button", onclick: () => this.open(cell)}, image));
    cell.image = image;
    return cell;
  }

  fill(cell, index, side) {
    const p = this.known(index);
    if (cell.picture !== p || !p) {
      const url = p && p.type !== "application/zip" ? `/api/v1/pictures/${p.id}/thumbnail` : "";
      if (cell.url !== url) {
        cell.url = url;
        cell.image.removeAttribute("src");
      }
      cell.image.alt = p ? p.prompt || `picture with seed ${p.seed}` : "";
      cell.firstChild.setAttribute("aria-label", p ? cell.image.alt : "a picture that is being looked up");
      cell.picture = p;
    }
    cell.index = index;
    cell.side = side;
    cell.className = (p?.favourite ? "favourite " : "") + (p && this.chosen.has(p.id) ? "chosen" : "");
    cell.setAttribute("aria-posinset", index + 1);
    cell.setAttribute("aria-setsize", this.total);
    cell.firstChild.tabIndex = index === clamp(this.at, 0, this.total - 1) ? 0 : -1;
    cell.style.width = cell.style.height = `${side}px`;
    cell.style.transform = `translate(${(index % this.columns) * side}px, ${Math.floor(index / this.columns) * side}px)`;
    if (!cell.isConnected) this.list.append(cell);
  }

  key(e) {
    const rows = Math.max(1, Math.floor(this.scroller.clientHeight / this.side));
    const by = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -this.total,
      End: this.total, PageDown: rows * this.columns, PageUp: -rows * this.columns}[e.key];
    const p = this.known(this.at);
    if (by !== undefined) {
      e.preventDefault();
      this.go(clamp(this.at + by, 0, this.total - 1));
    } else if (e.key === "f" && p) {
      this.favour(p);
    }
  }

  go(index) {
    this.at = index;
    const top = Math.floor(index / this.columns) * this.side, view = this.scroller;
    if (top < view.scrollTop) view.scrollTop = top;
    if (top + this.side > view.scrollTop + view.clientHeight) view.scrollTop = top + this.side - view.clientHeight;
    this.draw(true);
    this.cells.get(index)?.firstChild.focus({preventScroll: true});
  }

  async favour(p) {
    try {
      p.favourite = (await ask(`/api/v1/pictures/${p.id}`, {favourite: !p.favourite}, "PATCH")).favourite;
      say(p.favourite ? "A favourite: it is kept" : "No favourite any more");
      this.draw(true);
    } catch (e) { say(e.message); }
  }

  picking(on) {
    this.pick.setAttribute("aria-pressed", on);
    this.chosen.clear();
    if (on) say("Choose two pictures");
    this.draw(true);
  }

  open(cell) {
    this.at = cell.index;
    const p = cell.picture;
    if (!p) return;
    if (this.pick.getAttribute("aria-pressed") !== "true") return show_picture(p.id, this);
    if (this.chosen.has(p.id)) this.chosen.delete(p.id);
    else this.chosen.set(p.id, p);
    if (this.chosen.size === 2) {
      compare_pictures(...this.chosen.values());
      return this.picking(false);
    }
    this.draw(true);
  }

  // The picture beside the one that is shown, for the viewer.
  beside(id, by) {
    const here = [...this.pages].flatMap(([n, page]) => Array.isArray(page) ? page.map((p, i) => [n * PAGE + i, p]) : [])
      .find(([, p]) => p.id === id);
    return here && this.known(here[0] + by)?.id;
  }
}
customElements.define("sf-gallery", Gallery);
