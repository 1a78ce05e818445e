// The list of runs: columns, sorting, filter and keyboard focus. Only rows that changed are rebuilt.
import { byId, element, setText } from "./dom.js";
import { formatCount, formatDuration, formatErrorRange, formatTime } from "./format.js";

const dagger = (shown) => (shown ? element("span", { class: "dagger" }, "†") : null);

const COLUMNS = [
  { key: "name", title: "name", sort: (row) => row.name, cell: (row) => [row.name] },
  { key: "data", title: "data", sort: (row) => row.data || "", cell: (row) => [row.data || "–"] },
  { key: "algorithm", title: "algorithm", sort: algorithms, cell: (row) => [algorithms(row)] },
  { key: "mode", title: "mode", sort: (row) => row.mode || "", cell: (row) => [row.mode || "–"] },
  { key: "epsilon", title: "total ε", number: true, sort: leastEpsilon, cell: (row) => [epsilon(row)] },
  { key: "seeds", title: "seeds", number: true, sort: (row) => row.seeds ?? -1, cell: (row) => [String(row.seeds ?? "–")] },
  { key: "rounds", title: "rounds", number: true, sort: (row) => row.done ?? -1, cell: rounds },
  { key: "state", title: "state", sort: (row) => row.state, cell: state },
  { key: "error", title: "test error", number: true, sort: (row) => row.errors?.[0] ?? Infinity, cell: testError },
  { key: "started", title: "started", sort: (row) => row.started ?? 0, cell: (row) => [formatTime(row.started)] },
  { key: "duration", title: "duration", number: true, sort: (row) => row.duration ?? -1, cell: duration },
];

function algorithms(row) {
  return (row.algorithms || []).join(", ") || "–";
}

function epsilon(row) {
  if (!row.epsilon) return "–";
  if (row.mode === "certified") return row.epsilon.map((value) => (value === "inf" ? "∞" : value)).join(", ");
  return element("span", { class: "soft", title: `no end-to-end guarantee; nominal ε of one update: ${row.epsilon.join(", ")}` }, "none");
}

function leastEpsilon(row) {
  return row.mode === "certified" ? Math.min(...row.epsilon.map((value) => (value === "inf" ? Infinity : Number(value)))) : Infinity;
}

function rounds(row) {
  if (row.done === null) return ["–"];
  if (!row.at) return [formatCount(row.done)];
  const algorithm = row.algorithms.length > 1 ? `${row.at}: ` : "";
  const bar = element("span", { class: "progress", role: "progressbar", "aria-valuenow": Math.round(100 * row.share), "aria-label": "progress" }, element("span"));
  bar.firstChild.style.width = `${100 * row.share}%`;
  return [`${algorithm}${formatCount(row.done)} / ${formatCount(row.planned)}`, bar];
}

function state(row) {
  const reason = row.reason ? element("span", { class: "why", title: row.reason }, `: ${row.reason}`) : null;
  return [element("span", { class: `state ${row.state}`, title: row.resume || null }, row.state), reason];
}

function testError(row) {
  if (row.errors) return [formatErrorRange(row.errors, row.regression), dagger(row.errors_local)];
  if (row.state === "damaged" || !row.done) return ["–"];
  return [element("span", { class: "soft" }, row.tested ? "not public" : "no test set")];
}

function duration(row) {
  return [formatDuration(row.duration), dagger(row.duration !== null && row.duration_local)];
}

// The text of a row that the filter searches.
function searchText(row) {
  return [row.name, row.data, algorithms(row), row.mode, row.noise, (row.epsilon || []).join(" "), row.state, row.reason].join(" ").toLowerCase();
}

export class RunTable {
  constructor(actions) {
    this.actions = actions; // {open(id), tick(id), sort(key)}
    this.built = new Map(); // id -> {version, line, text}
    this.order = []; // ids of the visible rows, from top to bottom
    const tick = element("th", { scope: "col", class: "tick" }, element("span", { class: "unseen" }, "drawn"));
    byId("headings").append(tick, ...COLUMNS.map((column) => this.heading(column)));
  }

  heading({ key, title, number }) {
    const button = element("button", { type: "button", onclick: () => this.actions.sort(key) }, title);
    return element("th", { scope: "col", "data-key": key, class: number ? "number" : null }, button);
  }

  show(rows, view) {
    for (const row of rows) {
      const known = this.built.get(row.id);
      if (known?.version === row.version) continue;
      const line = this.line(row);
      known?.line.replaceWith(line);
      this.built.set(row.id, { version: row.version, line, text: searchText(row) });
    }
    const visible = this.visible(rows, view);
    const focused = this.focused();
    this.place(visible.map((row) => this.built.get(row.id).line));
    this.order = visible.map((row) => row.id);
    this.mark(view);
    if (focused && document.activeElement === document.body) this.focus(focused);
    const all = `${rows.length} ${rows.length === 1 ? "run" : "runs"}`;
    setText(byId("count"), visible.length === rows.length ? all : `${visible.length} of ${rows.length} runs`);
    byId("own-note").hidden = !visible.some((row) => row.errors_local || (row.duration_local && row.duration !== null));
  }

  // The rows that match the filter, sorted.
  visible(rows, view) {
    const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = rows.filter((row) => words.every((word) => this.built.get(row.id).text.includes(word)));
    const by = (COLUMNS.find((column) => column.key === view.sort) || COLUMNS[0]).sort;
    const sign = view.down ? -1 : 1;
    return matching.map((row) => [by(row), row]).sort(([a, x], [b, y]) => {
      if (a === b) return x.name < y.name ? -1 : 1;
      return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    }).map(([, row]) => row);
  }

  // Put the lines into this order; leave the document alone if they already are.
  place(lines) {
    const body = byId("rows");
    const same = body.children.length === lines.length && lines.every((line, i) => body.children[i] === line);
    if (!same) body.replaceChildren(...lines);
  }

  line(row) {
    const box = element("input", { type: "checkbox", tabindex: -1, "aria-label": `draw ${row.name}`, onclick: (event) => { event.stopPropagation(); this.actions.tick(row.id); } });
    const cells = COLUMNS.map(({ key, number, cell }) => (
      key === "name" ? element("th", { scope: "row", title: row.name }, ...cell(row)) : element("td", { class: number ? "number" : null }, ...cell(row))));
    return element("tr", { "data-id": row.id, tabindex: -1, onclick: () => this.actions.open(row.id) }, element("td", { class: "tick" }, box), ...cells);
  }

  // Show which row is open, which are ticked, and by which column the list is sorted.
  mark(view) {
    const tabStop = this.order.includes(view.open) ? view.open : this.order[0];
    for (const id of this.order) {
      const { line } = this.built.get(id);
      line.tabIndex = id === tabStop ? 0 : -1;
      line.toggleAttribute("aria-current", id === view.open);
      line.querySelector("input").checked = view.ticked.has(id);
    }
    for (const heading of byId("headings").querySelectorAll("[data-key]")) {
      if (heading.dataset.key === view.sort) heading.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
    byId("untick").hidden = !view.ticked.size;
  }

  focused() {
    return document.activeElement?.closest?.("#rows tr")?.dataset.id || "";
  }

  focus(id) {
    this.built.get(id)?.line.focus();
  }

  // Move the focus by so many rows, from the focused row or else from the given one.
  step(by, from) {
    if (!this.order.length) return;
    const here = this.order.indexOf(this.focused() || from);
    this.focus(this.order[Math.max(0, Math.min(this.order.length - 1, here + by))]);
  }
}
