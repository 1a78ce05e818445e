// The list of runs: sorted, filtered, gone through by mouse or keys; only rows that changed are made anew.
import { COLUMNS, words } from "./columns.js";
import { byId, element, say } from "./dom.js";

export class Table {
  constructor(act) {
    this.act = act; // {open(id), tick(id), sort(key)}
    this.made = new Map(); // id -> {version, line, words}
    this.order = []; // the ids that are shown
    const tick = element("th", { scope: "col", class: "tick" }, element("span", { class: "unseen" }, "drawn"));
    byId("headings").append(tick, ...COLUMNS.map((column) => this.heading(column)));
  }

  heading({ key, title, number }) {
    const button = element("button", { type: "button", onclick: () => this.act.sort(key) }, title);
    return element("th", { scope: "col", "data-key": key, class: number ? "number" : null }, button);
  }

  show(rows, state) {
    for (const row of rows) {
      const known = this.made.get(row.id);
      if (known?.version === row.version) continue;
      const line = this.line(row);
      known?.line.replaceWith(line);
      this.made.set(row.id, { version: row.version, line, words: words(row) });
    }
    const wanted = this.wanted(rows, state);
    const focused = document.activeElement?.closest?.("#rows tr")?.dataset.id;
    this.place(wanted.map((row) => this.made.get(row.id).line));
    this.order = wanted.map((row) => row.id);
    this.marks(state);
    if (focused && document.activeElement === document.body) this.focus(focused);
    say(byId("count"), wanted.length === rows.length ? `${rows.length} ${rows.length === 1 ? "run" : "runs"}` : `${wanted.length} of ${rows.length} runs`);
    byId("own-note").hidden = !wanted.some((row) => row.errors_local || (row.duration_local && row.duration !== null));
  }

  wanted(rows, state) {
    const asked = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = rows.filter((row) => asked.every((word) => this.made.get(row.id).words.includes(word)));
    const by = (COLUMNS.find((column) => column.key === state.sort) || COLUMNS[0]).sort;
    const sign = state.down ? -1 : 1;
    return fits.map((row) => [by(row), row]).sort(([a, x], [b, y]) => {
      if (a === b) return x.name < y.name ? -1 : 1;
      return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    }).map(([, row]) => row);
  }

  // Put the lines into this order, and touch nothing where they are in it.
  place(lines) {
    const body = byId("rows");
    const same = body.children.length === lines.length && lines.every((line, i) => body.children[i] === line);
    if (!same) body.replaceChildren(...lines);
  }

  line(row) {
    const box = element("input", { type: "checkbox", tabindex: -1, "aria-label": `draw ${row.name}`, onclick: (event) => { event.stopPropagation(); this.act.tick(row.id); } });
    const cells = COLUMNS.map(({ key, number, cell }) => {
      const inside = cell(row).filter((part) => part !== null);
      return key === "name" ? element("th", { scope: "row", title: row.name }, ...inside) : element("td", { class: number ? "number" : null }, ...inside);
    });
    return element("tr", { "data-id": row.id, tabindex: -1, onclick: () => this.act.open(row.id) }, element("td", { class: "tick" }, box), ...cells);
  }

  marks(state) {
    const stop = this.order.includes(state.open) ? state.open : this.order[0];
    for (const id of this.order) {
      const { line } = this.made.get(id);
      line.tabIndex = id === stop ? 0 : -1;
      line.toggleAttribute("aria-current", id === state.open);
      line.querySelector("input").checked = state.ticked.has(id);
    }
    for (const heading of byId("headings").querySelectorAll("[data-key]")) {
      const mine = heading.dataset.key === state.sort;
      if (mine) heading.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
    byId("untick").hidden = !state.ticked.size;
  }

  focused() {
    return document.activeElement?.closest?.("#rows tr")?.dataset.id || "";
  }

  focus(id) {
    this.made.get(id)?.line.focus();
  }

  step(by, from) {
    if (!this.order.length) return;
    const here = this.order.indexOf(this.focused() || from);
    this.focus(this.order[Math.max(0, Math.min(this.order.length - 1, here + by))]);
  }
}
