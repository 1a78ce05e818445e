// The page: what is open and ticked, and a look at the server every second while something runs.
import { read, write } from "./address.js";
import { askForRuns, Refused } from "./ask.js";
import { showCurves } from "./curves.js";
import { byId, element, say } from "./dom.js";
import { listen } from "./keys.js";
import { showLedger } from "./ledger.js";
import { showPrivacy } from "./meter.js";
import { showSettings } from "./settings.js";
import { Table } from "./table.js";
import { whole } from "./words.js";

const BUSY = 1000; // milliseconds between two looks while a run goes on
const QUIET = 3000;
const HIDDEN = 15000;

const state = read();
let rows = [];
let timer = 0;

const act = {
  open: (id) => change({ open: id, other: id === state.other ? "" : state.other }),
  tick: (id) => {
    if (!state.ticked.delete(id)) state.ticked.add(id);
    change({});
  },
  sort: (key) => change(key === state.sort ? { down: !state.down } : { sort: key, down: key === "started" }),
  filter: (filter) => {
    byId("filter").value = filter;
    change({ filter });
  },
};
const table = new Table(act);

function change(more) {
  Object.assign(state, more);
  write(state);
  show();
}

function show() {
  table.show(rows, state);
  byId("list").hidden = !rows.length;
  byId("empty").hidden = rows.length > 0;
  const open = rows.find((row) => row.id === state.open);
  byId("details").hidden = !open;
  if (open) showRun(open);
}

function showRun(row) {
  say(byId("title"), row.name);
  facts(row);
  const others = rows.filter((one) => state.ticked.has(one.id) && one.id !== row.id);
  showCurves([row, ...others]);
  showPrivacy(row);
  showSettings(row, rows, state.other || (others.length === 1 ? others[0].id : ""), (other) => change({ other }));
  showLedger(row);
}

function facts(row) {
  const key = row.version;
  const place = byId("facts");
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const progress = row.at ? ` after ${whole(row.done)} of ${whole(row.planned)} rounds` : "";
  const study = row.data ? ` · ${row.data}, ${row.agents} parties, ${row.algorithms.join(", ")}, mode ${row.mode}, noise ${row.noise}` : "";
  const reason = row.reason ? element("span", { class: "bad" }, `: ${row.reason}`) : "";
  place.replaceChildren(element("span", { class: `state ${row.state}` }, row.state), progress, reason, study);
  if (row.resume) place.append(" · go on with ", copied(row.resume));
}

// A command to take along: a click copies it, where the browser lets us.
function copied(command) {
  const code = element("code", {}, command);
  const button = element("button", { type: "button", class: "quiet", onclick: async () => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
    }
  } }, "copy");
  return element("span", {}, code, " ", button);
}

function news(before) {
  const running = rows.filter((row) => row.state === "running").length;
  const old = new Map(before.map((row) => [row.id, row.state]));
  const changed = rows.filter((row) => old.has(row.id) && old.get(row.id) !== row.state).map((row) => `${row.name}: ${row.state}`);
  const begun = before.length ? rows.filter((row) => !old.has(row.id)).map((row) => `${row.name}: new`) : [];
  say(byId("news"), [running ? `${running} running` : "nothing running", ...changed, ...begun].slice(0, 4).join(" · "));
  byId("news").classList.toggle("live", running > 0);
}

async function look() {
  clearTimeout(timer);
  try {
    const found = await askForRuns();
    document.body.classList.remove("gone");
    if (found) take(found);
  } catch (error) {
    document.body.classList.add("gone");
    say(byId("news"), error instanceof Refused ? error.message : "the dashboard has ended or cannot be reached");
  }
  const running = rows.some((row) => row.state === "running");
  timer = setTimeout(look, document.hidden ? HIDDEN : running ? BUSY : QUIET);
}

function take(found) {
  const before = rows;
  rows = found.runs;
  document.body.dataset.local = found.local ? "yes" : "no";
  say(byId("folder"), found.folder);
  say(byId("begin"), `taciturn run --total-epsilon 1 --out ${found.local ? found.folder : "runs"}/first`);
  if (!rows.some((row) => row.id === state.open)) state.open = latest()?.id || "";
  news(before);
  write(state);
  show();
}

// What is likely looked for: the newest run that goes on, or the newest that is whole.
function latest() {
  const newest = [...rows].sort((a, b) => (b.started ?? 0) - (a.started ?? 0));
  return newest.find((row) => row.state === "running") || newest.find((row) => row.state !== "damaged") || newest[0];
}

byId("filter").value = state.filter;
byId("filter").addEventListener("input", (event) => change({ filter: event.target.value }));
byId("untick").addEventListener("click", () => change({ ticked: new Set() }));
for (const id of ["settings", "ledger"]) byId(id).addEventListener("toggle", show);
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
addEventListener("hashchange", () => {
  Object.assign(state, read());
  byId("filter").value = state.filter;
  show();
});
listen(table, state, act);
look();
