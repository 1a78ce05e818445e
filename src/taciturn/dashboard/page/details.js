// The parts of the page about one run besides its charts: privacy meters, settings and ledger.
import { byId, element, svgElement, textTable } from "./dom.js";
import { formatCount, formatExponent, formatNumber, formatParties } from "./format.js";
import { fetchDetail, fetchUntilDone } from "./server.js";

const WAITING = "adding up …";

// A panel filled by a slow request; it is requested again whenever the run changes.
class SlowPanel {
  constructor(detail, place, show) {
    Object.assign(this, { detail, place, show, shown: "" });
  }

  update(row) {
    const key = `${row.id} ${row.version}`;
    if (key === this.shown) return;
    if (!this.shown.startsWith(row.id)) this.place.replaceChildren(element("p", { class: "soft" }, WAITING));
    this.shown = key;
    const show = (reply) => {
      if (reply.damaged) this.place.replaceChildren(element("p", { class: "bad" }, reply.damaged));
      else this.show(reply, this.place);
    };
    fetchUntilDone(row.id, this.detail, show, () => this.shown === key).catch(() => { this.shown = ""; });
  }
}

const privacyPanel = new SlowPanel("privacy", byId("meters"), showPrivacyReply);
const ledgerPanel = new SlowPanel("ledger", byId("ledger-content"), showLedgerReply);

export const showPrivacy = (row) => privacyPanel.update(row);

export function showLedger(row) {
  if (byId("ledger").open) ledgerPanel.update(row);
}

// Privacy: the guarantee in one sentence, then for every run what each party has spent, has left, and pays next.
function showPrivacyReply(reply, place) {
  if (!reply.headline) return;
  const guarantee = element("p", { class: reply.good ? "promise good" : "promise" }, reply.headline);
  const reasons = reply.reasons.map((reason) => element("li", {}, reason));
  place.replaceChildren(guarantee, ...reply.runs.map((run) => privacyMeter(run, reply.delta)), element("ul", { hidden: !reasons.length }, ...reasons));
}

function privacyMeter(run, delta) {
  const heading = element("h4", {}, run.label, element("span", { class: "soft" }, run.seeds > 1 ? `same for ${run.seeds} seeds` : ""));
  if (!run.finite) return element("div", { class: "meter" }, heading, element("p", {}, "No noise: no finite budget and no protection."));
  const uncharged = run.waiting ? `Includes ${run.waiting} rounds that the next checkpoint charges. ` : "";
  const method = element("p", { class: "soft" }, `${uncharged}At δ ${formatNumber(delta, 2)}, by ${run.agents[0].accountant}.`);
  return element("div", { class: "meter" }, heading, ...run.agents.map((agent) => budgetBar(agent, run)), method);
}

function budgetBar(agent, run) {
  const [spent, left] = [agent.spent, agent.left].map(formatExponent);
  const names = formatParties(agent.names);
  const spentBar = element("div", { class: "spent" });
  const nextBar = element("div", { class: "next" });
  spentBar.style.width = `${100 * agent.share}%`;
  nextBar.style.width = `${100 * Math.min(agent.next_share, 1 - agent.share)}%`;
  const track = {
    class: "track", role: "meter", "aria-label": names, "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": agent.share,
    "aria-valuetext": `spent ε ${spent} of ${run.planned}, ${left} left`,
  };
  return element("div", { class: "agent" },
    element("div", { class: "who" }, names, element("span", {}, `ε ${spent} of ${run.planned}`)),
    element("div", track, spentBar, nextBar),
    element("div", { class: "figures" },
      element("span", {}, `left ε ${left}`),
      element("span", {}, agent.next ? `next round ε ${formatExponent(agent.next)}` : "no round left in the plan")));
}

// Ledger: the totals of every run, and the newest lines.
function showLedgerReply(reply, place) {
  if (!reply.entries) return;
  const summary = `${formatCount(reply.lines)} lines; the hash chain is intact. ${reply.together}`;
  const newest = `the newest ${reply.entries.length} of ${formatCount(reply.lines)} lines`;
  place.replaceChildren(
    element("p", {}, summary),
    reply.totals.length ? ledgerTotals(reply) : element("p", {}, "Nothing has been released yet: the ledger contains only the plan."),
    element("p", { class: "soft", hidden: reply.entries.length === reply.lines }, newest),
    scrollable(textTable(
      ["line", "kind", "run", "party", "rounds", "times", "event"],
      reply.entries.map((entry) => ({ cells: [entry.line, entry.kind, entry.run, entry.agent, entry.rounds, entry.count, entry.what] })))));
}

function ledgerTotals({ totals, delta }) {
  const headings = ["run", "parties", `spent ε at δ ${formatNumber(delta, 2)}`, "left", "spent ε at δ 0"];
  return scrollable(textTable(headings, totals.map((total) => ({ cells: [total.run, formatParties(total.agents), total.spent, total.left, total.pure] }))));
}

const scrollable = (table) => element("div", { class: "scroll low", tabindex: 0 }, table);

// Effects: how the trained model uses each column of a table.
let effectsKey = "";

export function showEffects(row) {
  const key = `${row.id} ${row.version}`;
  if (key === effectsKey) return;
  effectsKey = key;
  if (row.state !== "finished") byId("effects").hidden = true;
  else fetchDetail(row.id, "effects").then((reply) => { if (effectsKey === key) drawEffects(reply); }).catch(() => { effectsKey = ""; });
}

function drawEffects(reply) {
  const found = reply.effect_runs || [];
  byId("effects").hidden = !reply.damaged && !found.length;
  const parts = reply.damaged ? [element("p", { class: "bad" }, reply.damaged)] : found.flatMap((run) => [
    element("h4", {}, run.label, element("span", { class: "soft" }, ` ${run.about}`)), scrollable(effectTable(run))]);
  const note = "Bands and bars are two standard errors of the privacy noise alone, not of the choice of records.";
  byId("effects-content").replaceChildren(...parts, element("p", { class: "soft" }, note));
}

function effectTable(run) {
  const table = textTable(["column", "strength", "lowest", "at", "highest", "at", "noise", "effect"], run.columns.map(({ cells }) => ({ cells: [...cells, ""] })));
  table.querySelectorAll("tbody tr").forEach((line, i) => line.lastChild.replaceChildren(effectSketch(run.columns[i])));
  return table;
}

function effectSketch({ line, place, effect, error }) {
  const [width, height, margin] = [180, 44, 4];
  const low = effect.map((value, i) => value - (error[i] || 0));
  const high = effect.map((value, i) => value + (error[i] || 0));
  const [bottom, top] = [Math.min(0, ...low), Math.max(0, ...high)];
  const x = (i) => (margin + place[i] * (width - 2 * margin)).toFixed(1);
  const y = (value) => (height - margin - (value - bottom) / (top - bottom || 1) * (height - 2 * margin)).toFixed(1);
  const points = (values, order) => order.map((i) => `${x(i)},${y(values[i])}`).join(" ");
  const order = place.map((_, i) => i);
  const marks = line
    ? [svgElement("polygon", { points: `${points(high, order)} ${points(low, [...order].reverse())}`, class: "band" }),
      svgElement("polyline", { points: points(effect, order), class: "curve" })]
    : order.flatMap((i) => [svgElement("line", { x1: x(i), x2: x(i), y1: y(low[i]), y2: y(high[i]), class: "bar" }),
      svgElement("circle", { cx: x(i), cy: y(effect[i]), r: 2.5, class: Math.abs(effect[i]) <= (error[i] || 0) ? "dot muted" : "dot" })]);
  const zero = svgElement("line", { x1: 0, x2: width, y1: y(0), y2: y(0), class: "zero" });
  return svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "sketch", "aria-hidden": "true" }, zero, ...marks);
}

// Settings: those of the open run, next to those of another run.
let settingsKey = "";
let settings = [];
let runNames = ["", ""];

byId("only").addEventListener("change", () => drawSettings());

export function showSettings(row, rows, other, choose) {
  offerOtherRuns(row, rows, other, choose);
  const key = `${row.id} ${other}`;
  if (!byId("settings").open || key === settingsKey) return;
  settingsKey = key;
  runNames = [row.name, rows.find((candidate) => candidate.id === other)?.name || ""];
  fetchDetail(row.id, "settings", other ? `?other=${other}` : "").then((reply) => {
    if (settingsKey !== key) return;
    settings = (reply.settings || []).sort((a, b) => Boolean(b.differs) - Boolean(a.differs));
    if (reply.damaged) byId("settings-table").replaceChildren(element("p", { class: "bad" }, reply.damaged));
    else drawSettings();
  }).catch(() => { settingsKey = ""; });
}

function offerOtherRuns(row, rows, other, choose) {
  const place = byId("other");
  const others = rows.filter((candidate) => candidate.id !== row.id && candidate.state !== "damaged");
  const key = others.map((candidate) => candidate.id).join() + row.id;
  if (place.dataset.key !== key) {
    place.dataset.key = key;
    const options = others.map((candidate) => element("option", { value: candidate.id }, candidate.name));
    place.replaceChildren(element("option", { value: "" }, "no other run"), ...options);
    place.onchange = () => choose(place.value);
  }
  place.value = other;
  byId("only").disabled = !other;
}

function drawSettings() {
  const compared = Boolean(runNames[1]);
  const shown = settings.filter((setting) => !(compared && byId("only").checked) || setting.differs);
  const rows = shown.map((setting) => ({
    cells: [setting.name, setting.value, ...(compared ? [setting.other] : [])], kind: setting.differs ? "differs" : "",
  }));
  const table = textTable(["setting", runNames[0], ...(compared ? [runNames[1]] : [])], rows);
  byId("settings-table").replaceChildren(rows.length ? table : element("p", {}, "The settings are the same."));
}
