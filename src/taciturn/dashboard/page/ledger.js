// The ledger of the open run: its totals, and its newest lines.
import { askUntilDone } from "./ask.js";
import { byId, element } from "./dom.js";
import { number, several, whole } from "./words.js";

let shown = "";

export function showLedger(row) {
  const key = `${row.id} ${row.version}`;
  if (!byId("ledger").open || key === shown) return;
  if (!shown.startsWith(row.id)) byId("ledger-content").replaceChildren(element("p", { class: "soft" }, "adding up …"));
  shown = key;
  askUntilDone(row.id, "ledger", show, () => shown === key).catch(() => { shown = ""; });
}

function show(found) {
  const place = byId("ledger-content");
  if (found.damaged) {
    place.replaceChildren(element("p", { class: "bad" }, found.damaged));
  } else if (found.entries) {
    const intact = `${whole(found.lines)} lines, each following from the one before: nobody has changed it.`;
    place.replaceChildren(element("p", {}, `${intact} ${found.together}`), totals(found), lines(found));
  }
}

function totals({ totals: rows, delta }) {
  if (!rows.length) return element("p", {}, "Nothing was released yet: the ledger holds the plan alone.");
  const headings = ["run", "parties", `spent ε at δ ${number(delta, 2)}`, "left", "δ 0"];
  return scrolled(headings, rows.map((row) => [row.run, several(row.agents), row.spent, row.left, row.pure]));
}

function lines({ entries, lines: count }) {
  const headings = ["line", "kind", "run", "party", "rounds", "times", "what"];
  const rows = entries.map((one) => [one.line, one.kind, one.run, one.agent, one.rounds, one.count, one.what]);
  const less = entries.length < count ? element("p", { class: "soft" }, `the newest ${entries.length} of ${whole(count)} lines`) : null;
  return element("div", {}, less, scrolled(headings, rows));
}

function scrolled(headings, rows) {
  const head = element("thead", {}, element("tr", {}, ...headings.map((name) => element("th", { scope: "col" }, name))));
  const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, String(cell ?? ""))))));
  return element("div", { class: "scroll low", tabindex: 0 }, element("table", { class: "plain" }, head, body));
}
