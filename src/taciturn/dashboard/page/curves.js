// The four charts of the open run and of those that are ticked.
import { askFor } from "./ask.js";
import { chart, nameWidth, valueAt } from "./chart.js";
import { byId, drawn, element, say } from "./dom.js";
import { csvLink, plainName, saveSvg } from "./download.js";
import { keptPlaces, lineNames } from "./names.js";
import { current, light, look, MOST, whenChanged } from "./palette.js";
import { number, OWN, whole } from "./words.js";

const PANELS = [
  { metric: "test_error", title: "Test error", unit: "%", factor: 100, value: (v) => `${(100 * v).toFixed(2)} %` },
  { metric: "train_objective", title: "Training objective F(w)", unit: "loss a record", factor: 1, value: (v) => number(v) },
  { metric: "consensus_residual", title: "Consensus residual ‖Aw − z‖", unit: "parameter units", factor: 1, log: true, value: (v) => number(v, 3) },
  { metric: "noise", title: "Noise magnitude, mean |ξ|", unit: "gradient units", factor: 1, log: true, value: (v) => number(v, 3) },
];
const NUMBERS = { unit: "RMSE, label's unit", factor: 1, value: (v) => number(v) };
const HEIGHT = 250;
const MOST_ROOM = 0.45; // of a chart's width, for names
const SAVED = { width: 860, height: 440 };
const LONGEST = 40; // letters of a name in a file

const known = new Map(); // id -> {version, charts, damaged}
const asked = new Map(); // id -> version
const figures = new Map(); // metric -> Figure
let runs = [];
let drawing = 0;

whenChanged(() => draw());
new ResizeObserver(() => draw()).observe(byId("charts"));

// Show these runs; those that have changed are asked for.
export function showCurves(rows) {
  runs = rows;
  for (const row of rows) {
    if (asked.get(row.id) === row.version) continue;
    asked.set(row.id, row.version);
    askFor(row.id, "curves").then((found) => {
      known.set(row.id, found);
      draw();
    }).catch(() => asked.delete(row.id));
  }
  draw();
}

function draw() {
  if (drawing) return;
  drawing = requestAnimationFrame(() => {
    drawing = 0;
    drawAll();
  });
}

function drawAll() {
  const waiting = runs.some((row) => !known.has(row.id));
  byId("charts").setAttribute("aria-busy", waiting);
  if (waiting && !runs.some((row) => known.has(row.id))) return; // what was there stays, dimmed, until there is something new
  const all = allLines();
  const room = MOST_ROOM * (figure(PANELS[0].metric).canvas.clientWidth || byId("charts").clientWidth / 2);
  const { names, numbered } = lineNames(all, (name) => nameWidth(name, { mean: [0.1234] }, PANELS[0]) <= room);
  const places = keptPlaces(all.map((line) => line.key));
  all.forEach((line, i) => Object.assign(line, { i: places[i], name: names[i], mark: numbered ? `#${places[i] + 1}` : names[i] }));
  all.sort((a, b) => a.i - b.i);
  const lines = all.slice(0, MOST);
  const regression = runs.some((row) => row.regression);
  for (const panel of PANELS) {
    const mine = lines.filter((line) => line.charts[panel.metric]).map((line) => ({ ...line, ...line.charts[panel.metric].line }));
    const own = lines.some((line) => line.charts[panel.metric]?.local);
    figure(panel.metric).show({ ...panel, ...measuredIn(panel.metric, mine, regression) }, mine, own);
  }
  legend(lines, numbered);
  note(all);
  downloads();
}

// Where the unit depends on what is drawn: errors of numbers, and noise that outp adds to parameters.
function measuredIn(metric, lines, regression) {
  if (metric === "test_error" && regression) return NUMBERS;
  const onParameters = lines.filter((line) => line.label.startsWith("outp,")).length;
  if (metric !== "noise" || !onParameters) return {};
  return { unit: onParameters === lines.length ? "parameter units" : "gradient (outp: parameter) units" };
}

// One entry for each run, algorithm and epsilon, with its line in every chart.
function allLines() {
  const found = [];
  for (const row of runs) {
    const charts = known.get(row.id)?.charts || {};
    const labels = new Set(Object.values(charts).flatMap((one) => one.lines.map((line) => line.label)));
    for (const label of labels) {
      const mine = {};
      for (const [metric, { local, lines }] of Object.entries(charts)) {
        const line = lines.find((candidate) => candidate.label === label);
        if (line && line.rounds.length) mine[metric] = { local, line };
      }
      found.push({ key: `${row.id} ${label}`, run: row.name, label, charts: mine });
    }
  }
  return found;
}

function note(all) {
  const damaged = runs.filter((row) => known.get(row.id)?.damaged).map((row) => `${row.name}: ${known.get(row.id).damaged}`);
  const seeds = Math.max(0, ...runs.map((row) => row.seeds || 0));
  const words = [
    ...damaged,
    all.length > MOST ? `the first ${MOST} of ${all.length} lines` : "",
    !all.length && !damaged.length ? "no round has been evaluated yet" : "",
    seeds > 1 && all.length ? "mean over seeds; band from the 20th to the 80th percentile" : "",
  ];
  say(byId("curves-note"), words.filter(Boolean).join(" · "));
  byId("curves-note").classList.toggle("bad", damaged.length > 0);
}

function legend(lines, numbered) {
  const place = byId("legend");
  place.hidden = !numbered;
  place.replaceChildren(...(numbered ? lines : []).map((line) => {
    const swatch = drawn("svg", { width: 26, height: 10, "aria-hidden": "true" }, drawn("line", { x1: 1, x2: 25, y1: 5, y2: 5, "stroke-width": 2, ...look(current(), line.i) }));
    return element("li", {}, swatch, ` ${line.mark} ${line.name}`);
  }));
}

function downloads() {
  const ids = runs.filter((row) => row.state !== "damaged").map((row) => row.id);
  const local = runs.some((row) => row.duration_local) && document.body.dataset.local === "yes";
  const key = `${ids} ${local}`;
  const place = byId("downloads");
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const links = ids.length ? [csvLink(ids, false, "CSV"), ...(local ? [csvLink(ids, true, "CSV with local-only figures")] : [])] : [];
  place.replaceChildren(...links);
}

function figure(metric) {
  if (!figures.has(metric)) {
    figures.set(metric, new Figure(metric));
    byId("charts").append(figures.get(metric).place);
  }
  return figures.get(metric);
}

// A chart with its caption, its mark for the round under the pointer, and words for those who do not see it.
class Figure {
  constructor(metric) {
    this.at = null;
    this.title = element("strong");
    this.unit = element("span", { class: "soft" });
    this.own = element("span", { class: "own", hidden: true }, OWN);
    this.save = element("button", { type: "button", class: "quiet", onclick: () => this.download() }, "SVG");
    this.canvas = element("div", { class: "chart", tabindex: 0, role: "img", "data-metric": metric, onkeydown: (e) => this.key(e) });
    this.canvas.addEventListener("pointermove", (e) => this.point(e));
    this.canvas.addEventListener("pointerleave", () => this.mark(null));
    this.canvas.addEventListener("blur", () => this.mark(null));
    this.spoken = element("p", { class: "unseen", "aria-live": "polite" });
    this.place = element("figure", {}, element("figcaption", {}, element("span", {}, this.title, " ", this.unit), this.save), this.own, this.canvas, this.spoken);
  }

  show(panel, lines, own) {
    Object.assign(this, { panel, lines, isOwn: own });
    this.place.hidden = !lines.length;
    say(this.title, panel.title);
    say(this.unit, panel.unit);
    this.own.hidden = !own;
    this.save.setAttribute("aria-label", `${panel.title} as an SVG file`);
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!this.lines?.length || !width) return;
    const { picture, rounds, round } = chart({ ...this.terms(current()), width, height: HEIGHT, at: this.at });
    Object.assign(this, { rounds, round });
    picture.setAttribute("aria-hidden", "true");
    this.canvas.replaceChildren(picture);
    this.canvas.setAttribute("aria-label", this.words(null));
  }

  terms(palette) {
    return { panel: this.panel, lines: this.lines, palette };
  }

  words(at) {
    const values = this.lines.map((line) => `${line.name} ${this.panel.value(valueAt(line, at))}`).join("; ");
    const when = at === null ? `last values, round ${whole(this.rounds?.at(-1) ?? 0)}` : `round ${whole(at)}`;
    return `${this.panel.title}, ${when}: ${values}`;
  }

  mark(at) {
    if (at === this.at) return;
    this.at = at;
    this.draw();
  }

  point(event) {
    if (!this.rounds?.length) return;
    const wanted = this.round(event.offsetX);
    this.mark(this.rounds.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best)));
  }

  key(event) {
    const last = (this.rounds?.length || 0) - 1;
    const here = this.at === null ? last + 1 : this.rounds.indexOf(this.at);
    const step = event.shiftKey ? 10 : 1;
    const moves = { ArrowLeft: here - step, ArrowRight: here + step, Home: 0, End: last };
    if (!(event.key in moves) || last < 0) return;
    event.preventDefault();
    this.mark(this.rounds[Math.max(0, Math.min(last, moves[event.key]))]);
    say(this.spoken, this.words(this.at));
  }

  download() {
    const title = `${this.panel.title} · ${runs.length === 1 ? runs[0].name : `${runs.length} runs`}`;
    const lines = this.lines.map((line) => ({ ...line, mark: line.name.length > LONGEST ? `${line.name.slice(0, LONGEST - 1)}…` : line.name }));
    const { picture } = chart({ panel: this.panel, lines, palette: light, ...SAVED, heading: title, own: this.isOwn });
    const name = `${plainName(runs.length === 1 ? runs[0].name : `${runs.length}-runs`)}-${this.panel.metric}`;
    saveSvg(picture, `${name}${this.isOwn ? "-local-only" : ""}.svg`);
  }
}
