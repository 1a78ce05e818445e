// The columns of the list: what stands in them, and by what they are sorted.
import { element } from "./dom.js";
import { duration, moment, range, whole } from "./words.js";

const own = (shown) => (shown ? element("span", { class: "dagger" }, "†") : null);

export const COLUMNS = [
  { key: "name", title: "name", sort: (row) => row.name, cell: (row) => [row.name] },
  { key: "data", title: "data", sort: (row) => row.data || "", cell: (row) => [row.data || "–"] },
  { key: "algorithm", title: "algorithm", sort: (row) => algorithms(row), cell: (row) => [algorithms(row)] },
  { key: "mode", title: "mode", sort: (row) => row.mode || "", cell: (row) => [row.mode || "–"] },
  { key: "epsilon", title: "total ε", number: true, sort: leastEpsilon, cell: (row) => [epsilon(row)] },
  { key: "seeds", title: "seeds", number: true, sort: (row) => row.seeds ?? -1, cell: (row) => [String(row.seeds ?? "–")] },
  { key: "rounds", title: "rounds", number: true, sort: (row) => row.done ?? -1, cell: rounds },
  { key: "state", title: "state", sort: (row) => row.state, cell: state },
  { key: "error", title: "test error", number: true, sort: (row) => row.errors?.[0] ?? Infinity, cell: error },
  { key: "started", title: "started", sort: (row) => row.started ?? 0, cell: (row) => [moment(row.started)] },
  { key: "duration", title: "duration", number: true, sort: (row) => row.duration ?? -1, cell: (row) => [duration(row.duration), own(row.duration !== null && row.duration_local)] },
];

const algorithms = (row) => (row.algorithms || []).join(", ") || "–";

function epsilon(row) {
  if (!row.epsilon) return "–";
  if (row.mode === "certified") return row.epsilon.map((value) => (value === "inf" ? "∞" : value)).join(", ");
  return element("span", { class: "soft", title: `no end-to-end guarantee; nominal ε of one update: ${row.epsilon.join(", ")}` }, "none");
}

function leastEpsilon(row) {
  return row.mode === "certified" ? Math.min(...row.epsilon.map((value) => (value === "inf" ? Infinity : Number(value)))) : Infinity;
}

function rounds(row) {
  if (row.done === undefined) return ["–"];
  if (!row.at) return [whole(row.done)];
  const several = row.algorithms.length > 1 ? `${row.at}: ` : "";
  const bar = element("span", { class: "progress", role: "progressbar", "aria-valuenow": Math.round(100 * row.share), "aria-label": "progress" }, element("span"));
  bar.firstChild.style.width = `${100 * row.share}%`;
  return [`${several}${whole(row.done)} / ${whole(row.planned)}`, bar];
}

function state(row) {
  const why = row.reason ? element("span", { class: "why", title: row.reason }, `: ${row.reason}`) : null;
  return [element("span", { class: `state ${row.state}`, title: row.resume || null }, row.state), why];
}

function error(row) {
  if (row.errors) return [range(row.errors, row.regression), own(row.errors_local)];
  if (row.state === "damaged" || !row.done) return ["–"];
  return [element("span", { class: "soft" }, row.tested ? "not public" : "no test set")];
}

// All of a row's text, for the filter.
export function words(row) {
  return [row.name, row.data, algorithms(row), row.mode, row.noise, (row.epsilon || []).join(" "), row.state, row.reason].join(" ").toLowerCase();
}
