// The privacy meter: what every party has spent, what is left, what the next round costs.
import { askUntilDone } from "./ask.js";
import { byId, element } from "./dom.js";
import { number, several, small } from "./words.js";

let shown = "";

export function showPrivacy(row) {
  const key = `${row.id} ${row.version}`;
  if (key === shown) return;
  if (!shown.startsWith(row.id)) byId("meters").replaceChildren(element("p", { class: "soft" }, "adding up …"));
  shown = key;
  askUntilDone(row.id, "privacy", show, () => shown === key).catch(() => { shown = ""; });
}

function show(found) {
  if (found.damaged) {
    byId("meters").replaceChildren(element("p", { class: "bad" }, found.damaged));
  } else if (found.headline) {
    const promise = element("p", { class: found.good ? "promise good" : "promise" }, found.headline);
    const reasons = found.reasons.map((reason) => element("li", {}, reason));
    byId("meters").replaceChildren(promise, ...found.runs.map((run) => meter(run, found.delta)), element("ul", { hidden: !reasons.length }, ...reasons));
  }
}

function meter(run, delta) {
  const seeds = run.seeds > 1 ? `${run.seeds} seeds alike` : "";
  const heading = element("h4", {}, run.label, element("span", { class: "soft" }, seeds));
  if (!run.finite) return element("div", { class: "meter" }, heading, element("p", {}, "No noise: no finite budget, and no protection."));
  const bars = run.agents.map((agent) => bar(agent, run));
  const waiting = run.waiting ? `${run.waiting} rounds of it are charged at the next checkpoint. ` : "";
  const how = element("p", { class: "soft" }, `${waiting}At δ ${number(delta, 2)}, by ${run.agents[0].accountant}.`);
  return element("div", { class: "meter" }, heading, ...bars, how);
}

function bar(agent, run) {
  const text = `spent ε ${small(agent.spent)} of ${run.planned}, ${small(agent.left)} left`;
  const filled = element("div", { class: "spent" });
  const next = element("div", { class: "next" });
  filled.style.width = `${100 * agent.share}%`;
  next.style.width = `${100 * Math.min(agent.next_share, 1 - agent.share)}%`;
  const names = several(agent.names);
  return element("div", { class: "agent" },
    element("div", { class: "who" }, names, element("span", {}, `ε ${small(agent.spent)} of ${run.planned}`)),
    element("div", { class: "track", role: "meter", "aria-label": names, "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": agent.share, "aria-valuetext": text }, filled, next),
    element("div", { class: "figures" },
      element("span", {}, `left ε ${small(agent.left)}`),
      element("span", {}, agent.next ? `next round ε ${small(agent.next)}` : "no round left in the plan")));
}
