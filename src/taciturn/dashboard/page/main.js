// The page: its state in the address, the keyboard, and a request to the server every second while a run is active.
import { showCharts } from "./charts.js";
import { showEffects, showLedger, showPrivacy, showSettings } from "./details.js";
import { byId, element, setText } from "./dom.js";
import { formatCount } from "./format.js";
import { AccessRefused, fetchRuns } from "./server.js";
import { RunTable } from "./table.js";

// Milliseconds between two requests.
const WHILE_RUNNING = 1000;
const WHILE_IDLE = 3000;
const WHILE_HIDDEN = 15000;

// The part of the address after # contains what is open, ticked, sorted and filtered, so that a view can be bookmarked.
function readAddress() {
  const stored = new URLSearchParams(location.hash.slice(1));
  return {
    open: stored.get("open") || "",
    ticked: new Set((stored.get("with") || "").split(",").filter(Boolean)),
    other: stored.get("beside") || "",
    filter: stored.get("filter") || "",
    sort: stored.get("sort") || "started",
    down: (stored.get("order") || "down") === "down",
  };
}

function writeAddress() {
  const stored = new URLSearchParams();
  if (view.open) stored.set("open", view.open);
  if (view.ticked.size) stored.set("with", [...view.ticked].join(","));
  if (view.other) stored.set("beside", view.other);
  if (view.filter) stored.set("filter", view.filter);
  if (view.sort !== "started" || !view.down) {
    stored.set("sort", view.sort);
    stored.set("order", view.down ? "down" : "up");
  }
  const text = stored.toString().replaceAll("%2C", ",");
  if (location.search || `#${text}` !== (location.hash || "#")) {
    history.replaceState(null, "", `${location.pathname}${text ? `#${text}` : ""}`); // this also removes the token from the address bar
  }
}

const view = readAddress();
let rows = [];
let timer = 0;

const actions = {
  open: (id) => change({ open: id, other: id === view.other ? "" : view.other }),
  tick: (id) => {
    if (!view.ticked.delete(id)) view.ticked.add(id);
    change({});
  },
  sort: (key) => change(key === view.sort ? { down: !view.down } : { sort: key, down: key === "started" }),
  filter: (filter) => {
    byId("filter").value = filter;
    change({ filter });
  },
};
const table = new RunTable(actions);

function change(changes) {
  Object.assign(view, changes);
  writeAddress();
  show();
}

function show() {
  table.show(rows, view);
  byId("list").hidden = !rows.length;
  byId("empty").hidden = rows.length > 0;
  const open = rows.find((row) => row.id === view.open);
  byId("details").hidden = !open;
  if (open) showRun(open);
}

function showRun(row) {
  setText(byId("title"), row.name);
  showFacts(row);
  const others = rows.filter((other) => view.ticked.has(other.id) && other.id !== row.id);
  showCharts([row, ...others]);
  showPrivacy(row);
  showSettings(row, rows, view.other || (others.length === 1 ? others[0].id : ""), (other) => change({ other }));
  showEffects(row);
  showLedger(row);
}

function showFacts(row) {
  const place = byId("facts");
  if (place.dataset.version === row.version) return;
  place.dataset.version = row.version;
  const progress = row.at ? ` after ${formatCount(row.done)} of ${formatCount(row.planned)} rounds` : "";
  const study = row.data ? ` · ${row.data}, ${row.agents} parties, ${row.algorithms.join(", ")}, mode ${row.mode}, noise ${row.noise}` : "";
  const reason = row.reason ? element("span", { class: "bad" }, `: ${row.reason}`) : "";
  place.replaceChildren(element("span", { class: `state ${row.state}` }, row.state), progress, reason, study);
  if (row.resume) place.append(" · continue with ", commandToCopy(row.resume));
}

// A command with a button that copies it, or selects it if the browser refuses access to the clipboard.
function commandToCopy(command) {
  const code = element("code", {}, command);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code);
    }
  };
  const button = element("button", { type: "button", class: "quiet", onclick: copy }, "copy");
  return element("span", {}, code, " ", button);
}

// Say what changed since the previous list.
function announce(before) {
  const running = rows.filter((row) => row.state === "running").length;
  const states = new Map(before.map((row) => [row.id, row.state]));
  const changed = rows.filter((row) => states.has(row.id) && states.get(row.id) !== row.state).map((row) => `${row.name}: ${row.state}`);
  const added = before.length ? rows.filter((row) => !states.has(row.id)).map((row) => `${row.name}: new`) : [];
  setText(byId("news"), [running ? `${running} running` : "nothing running", ...changed, ...added].slice(0, 4).join(" · "));
  byId("news").classList.toggle("live", running > 0);
}

async function refresh() {
  clearTimeout(timer);
  try {
    const reply = await fetchRuns();
    document.body.classList.remove("gone");
    if (reply) accept(reply);
  } catch (error) {
    document.body.classList.add("gone");
    setText(byId("news"), error instanceof AccessRefused ? error.message : "the dashboard has stopped or cannot be reached");
  }
  const running = rows.some((row) => row.state === "running");
  timer = setTimeout(refresh, document.hidden ? WHILE_HIDDEN : running ? WHILE_RUNNING : WHILE_IDLE);
}

function accept(reply) {
  const before = rows;
  rows = reply.runs;
  document.body.dataset.local = reply.local ? "yes" : "no";
  setText(byId("folder"), reply.folder);
  setText(byId("begin"), `taciturn run --total-epsilon 1 --out ${reply.local ? reply.folder : "runs"}/first`);
  if (!rows.some((row) => row.id === view.open)) view.open = likelyWanted()?.id || "";
  announce(before);
  writeAddress();
  show();
}

// Open first: the newest active run, or else the newest that is not damaged.
function likelyWanted() {
  const newest = [...rows].sort((a, b) => (b.started ?? 0) - (a.started ?? 0));
  return newest.find((row) => row.state === "running") || newest.find((row) => row.state !== "damaged") || newest[0];
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const control = event.target.closest("input[type=search], select, summary, button, a, .chart");
  if (event.key === "Escape" && event.target === byId("filter")) {
    actions.filter("");
    table.focus(table.order[0]);
  } else if (event.target === byId("filter")) {
    if (event.key !== "Enter" && event.key !== "ArrowDown") return;
    table.focus(table.order[0]);
  } else if (event.key === "/") {
    byId("filter").focus();
    byId("filter").select();
  } else if (event.key === "?") {
    byId("keys").showModal();
  } else if (event.key === "j" || (event.key === "ArrowDown" && !control)) {
    table.step(1, view.open);
  } else if (event.key === "k" || (event.key === "ArrowUp" && !control)) {
    table.step(-1, view.open);
  } else if (event.key === "Enter" && table.focused() && !control) {
    actions.open(table.focused());
  } else if (event.key === " " && table.focused() && !control) {
    actions.tick(table.focused());
  } else {
    return;
  }
  event.preventDefault();
}

byId("filter").value = view.filter;
byId("filter").addEventListener("input", (event) => change({ filter: event.target.value }));
byId("untick").addEventListener("click", () => change({ ticked: new Set() }));
byId("help").addEventListener("click", () => byId("keys").showModal());
for (const id of ["settings", "ledger"]) byId(id).addEventListener("toggle", show);
document.addEventListener("keydown", onKey);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
addEventListener("hashchange", () => {
  Object.assign(view, readAddress());
  byId("filter").value = view.filter;
  show();
});
refresh();
