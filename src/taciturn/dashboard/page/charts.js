// Charts of the open run and of the ticked ones: metrics over rounds, drawn by uPlot (vendor/), and their downloads.
import { byId, element, setText, svgElement } from "./dom.js";
import { formatCount, formatNumber } from "./format.js";
import { csvAddress, fetchDetail } from "./server.js";

/* global uPlot */

const OWNER_ONLY = "computed without noise: for the data owner only";
const PANELS = [
  { metric: "test_error", title: "Test error", unit: "%", factor: 100, format: (value) => `${value.toFixed(2)} %` },
  { metric: "private_error", title: "Error on held-out records, with noise", unit: "%, band: 95 %", factor: 100, format: (value) => `${value.toFixed(2)} %` },
  { metric: "train_objective", title: "Training objective F(w)", unit: "loss per record", factor: 1, format: (value) => formatNumber(value) },
  { metric: "consensus_residual", title: "Distance from the common model", unit: "parameter units", factor: 1, log: true, format: (value) => formatNumber(value, 3) },
  { metric: "noise", title: "Mean size of the noise", unit: "", factor: 1, log: true, format: (value) => formatNumber(value, 3) },
];
const REGRESSION_ERROR = { unit: "RMSE, unit of the label", factor: 1, format: (value) => formatNumber(value) };
const HEIGHT = 230; // CSS pixels of a chart without its legend
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const WHOLE_STEPS = [1, 2, 5].flatMap((factor) => Array.from({ length: 9 }, (_, exponent) => factor * 10 ** exponent)).sort((a, b) => a - b);

// Colours that colour-blind readers can distinguish (Okabe and Ito), and lighter ones of the same hues for dark mode.
const LIGHT = {
  lines: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"],
  ink: "#1c2126", soft: "#566069", grid: "#e4e8eb", page: "#ffffff",
};
const DARK = {
  lines: ["#4A9FD8", "#F07B35", "#1DBE92", "#E59BC6", "#F2B134", "#9AD6F7", "#F2F4F5"],
  ink: "#e8ebed", soft: "#a4aeb6", grid: "#2c3338", page: "#14181b",
};
const DASHES = [[], [7, 4], [2, 3], [8, 3, 2, 3]];
const MOST_LINES = LIGHT.lines.length * DASHES.length; // more lines would share colour and dash
const MOST_NAMES = 6; // of more lines the charts show numbers, and one list below says which is which
const LONGEST_NAME = 60; // characters

const darkMode = matchMedia("(prefers-color-scheme: dark)");
export const palette = () => (darkMode.matches ? DARK : LIGHT);
const colour = (colours, slot) => colours.lines[slot % colours.lines.length];
const dash = (slot) => DASHES[Math.floor(slot / LIGHT.lines.length) % DASHES.length];

const replies = new Map(); // id -> the server's curves of a run
const requested = new Map(); // id -> version of the run that was requested last
const figures = new Map(); // metric -> Figure
let runs = [];
let frame = 0;

darkMode.addEventListener("change", () => scheduleDraw());
new ResizeObserver(() => scheduleDraw()).observe(byId("charts"));

// Show these runs; request the curves of those that have changed.
export function showCharts(rows) {
  runs = rows;
  for (const row of rows) {
    if (requested.get(row.id) === row.version) continue;
    requested.set(row.id, row.version);
    fetchDetail(row.id, "curves").then((reply) => {
      replies.set(row.id, reply);
      scheduleDraw();
    }).catch(() => requested.delete(row.id));
  }
  scheduleDraw();
}

function scheduleDraw() {
  if (frame) return;
  frame = requestAnimationFrame(() => {
    frame = 0;
    drawAll();
  });
}

function drawAll() {
  const waiting = runs.some((row) => !replies.has(row.id));
  byId("charts").setAttribute("aria-busy", waiting);
  if (waiting && !runs.some((row) => replies.has(row.id))) return; // keep the previous charts, dimmed, until a reply arrives
  const all = collectLines();
  const numbered = nameLines(all);
  const lines = all.slice(0, MOST_LINES);
  for (const panel of PANELS) {
    const shown = lines.filter((line) => line.curves[panel.metric]).map((line) => ({ ...line, ...line.curves[panel.metric] }));
    figureOf(panel.metric).show({ ...panel, ...unitOf(panel.metric, shown) }, shown);
  }
  showLegend(lines, numbered);
  showNote(all);
  offerCsv();
}

// The unit of a panel if it depends on the runs: RMSE for regression, and for noise what each method's ledger says.
function unitOf(metric, lines) {
  if (["test_error", "private_error"].includes(metric) && runs.some((row) => row.regression)) return REGRESSION_ERROR;
  if (metric !== "noise") return {};
  const units = new Map(); // unit -> algorithms
  for (const { unit, algorithm } of lines) units.set(unit, new Set([...(units.get(unit) || []), algorithm]));
  const named = [...units].map(([unit, algorithms]) => `${unit} (${[...algorithms].join(", ")})`);
  return { unit: units.size === 1 ? [...units.keys()][0] : named.join(", ") };
}

// One entry per run, algorithm and epsilon, with its curve in every chart.
function collectLines() {
  const lines = [];
  for (const row of runs) {
    const charts = replies.get(row.id)?.charts || {};
    const labels = new Set(Object.values(charts).flatMap((chart) => chart.lines.map((line) => line.label)));
    for (const label of labels) {
      const curves = {};
      for (const [metric, { local, lines: candidates }] of Object.entries(charts)) {
        const curve = candidates.find((candidate) => candidate.label === label);
        if (curve && curve.rounds.length) curves[metric] = { ...curve, local };
      }
      lines.push({ key: `${row.id} ${label}`, run: row.name, label, curves });
    }
  }
  return lines;
}

const slots = new Map(); // key of a line -> its slot, which fixes its colour and number

// Give every line a slot, a name and a mark, which is the name or a number; return whether marks are numbers.
function nameLines(lines) {
  const keys = lines.map((line) => line.key);
  for (const key of [...slots.keys()]) if (!keys.includes(key)) slots.delete(key);
  const used = new Set(slots.values());
  const free = keys.map((_, slot) => slot).filter((slot) => !used.has(slot)).values();
  for (const key of keys) if (!slots.has(key)) slots.set(key, free.next().value);
  const runNames = [...new Set(lines.map((line) => line.run))];
  const oneLabel = new Set(lines.map((line) => line.label)).size === 1;
  const shared = sharedFolders(runNames);
  for (const line of lines) {
    const short = line.run.slice(shared) || line.run;
    line.slot = slots.get(line.key);
    line.name = runNames.length === 1 ? line.label : oneLabel ? short : `${short}: ${line.label}`;
  }
  const numbered = lines.length > MOST_NAMES || lines.some((line) => line.name.length > LONGEST_NAME);
  for (const line of lines) line.mark = numbered ? `#${line.slot + 1}` : line.name;
  lines.sort((a, b) => a.slot - b.slot);
  return numbered;
}

// The length of the folder path with which all names begin.
function sharedFolders(names) {
  if (names.length < 2) return 0;
  let shared = names[0].lastIndexOf("/") + 1;
  while (shared > 0 && !names.every((name) => name.startsWith(names[0].slice(0, shared)))) {
    shared = names[0].lastIndexOf("/", shared - 2) + 1;
  }
  return shared;
}

function showNote(lines) {
  const damaged = runs.filter((row) => replies.get(row.id)?.damaged).map((row) => `${row.name}: ${replies.get(row.id).damaged}`);
  const seeds = Math.max(0, ...runs.map((row) => row.seeds || 0));
  const notes = [
    ...damaged,
    lines.length > MOST_LINES ? `the first ${MOST_LINES} of ${lines.length} lines` : "",
    !lines.length && !damaged.length ? "no round has been evaluated yet" : "",
    seeds > 1 && lines.length ? "mean over seeds; band from the 20th to the 80th percentile" : "",
  ];
  setText(byId("curves-note"), notes.filter(Boolean).join(" · "));
  byId("curves-note").classList.toggle("bad", damaged.length > 0);
}

function swatch(colours, slot, x = 1, y = 5) {
  return svgElement("line", { x1: x, x2: x + 24, y1: y, y2: y, "stroke-width": 2, stroke: colour(colours, slot), "stroke-dasharray": dash(slot).join(" ") || null });
}

function showLegend(lines, numbered) {
  byId("legend").hidden = !numbered;
  byId("legend").replaceChildren(...(numbered ? lines : []).map((line) => element("li", {},
    svgElement("svg", { width: 26, height: 10, "aria-hidden": "true" }, swatch(palette(), line.slot)), ` ${line.mark} ${line.name}`)));
}

function offerCsv() {
  const ids = runs.filter((row) => row.state !== "damaged").map((row) => row.id);
  const local = runs.some((row) => row.duration_local) && document.body.dataset.local === "yes";
  const place = byId("downloads");
  if (place.dataset.key === `${ids} ${local}`) return;
  place.dataset.key = `${ids} ${local}`;
  const link = (withLocal, text) => element("a", { href: csvAddress(ids, withLocal), download: "" }, text);
  place.replaceChildren(...(ids.length ? [link(false, "CSV"), ...(local ? [link(true, "CSV with local-only figures")] : [])] : []));
}

function figureOf(metric) {
  if (!figures.has(metric)) {
    figures.set(metric, new Figure(metric));
    byId("charts").append(figures.get(metric).place);
  }
  return figures.get(metric);
}

// A chart with its caption, keyboard control, and a text alternative.
class Figure {
  constructor(metric) {
    this.key = ""; // what the uPlot instance was created for
    this.title = element("strong");
    this.unit = element("span", { class: "soft" });
    this.owner = element("span", { class: "own", hidden: true }, OWNER_ONLY);
    this.save = element("button", { type: "button", class: "quiet", onclick: () => this.download() }, "SVG");
    this.canvas = element("div", { class: "chart", tabindex: 0, role: "group", "data-metric": metric, onkeydown: (event) => this.onKey(event), onblur: () => this.moveCursor(null) });
    this.spoken = element("p", { class: "unseen", "aria-live": "polite" });
    this.place = element("figure", {}, element("figcaption", {}, element("span", {}, this.title, " ", this.unit), this.save), this.owner, this.canvas, this.spoken);
  }

  show(panel, allLines) {
    const lines = allLines.filter((line) => !panel.log || line.mean.some((value) => value > 0));
    Object.assign(this, { panel, lines, local: lines.some((line) => line.local) });
    this.place.hidden = !allLines.length;
    setText(this.title, panel.title);
    setText(this.unit, panel.unit);
    this.owner.hidden = !this.local;
    this.save.setAttribute("aria-label", `${panel.title} as an SVG file`);
    this.save.disabled = !lines.length;
    const width = this.canvas.clientWidth;
    if (!lines.length) this.clear();
    else if (width) this.draw(width);
  }

  clear() {
    this.plot?.destroy();
    Object.assign(this, { plot: null, key: "" });
    this.canvas.replaceChildren(element("p", { class: "soft" }, "no value above zero to draw"));
  }

  // Give uPlot new values; create it again only if lines, units or colours have changed.
  draw(width) {
    const data = alignedData(this.panel, this.lines);
    const key = JSON.stringify([this.panel.unit, darkMode.matches, this.lines.map((line) => [line.slot, line.mark, Boolean(line.low)])]);
    if (key !== this.key) {
      this.plot?.destroy();
      this.canvas.replaceChildren();
      this.plot = new uPlot(plotOptions(this.panel, this.lines, palette(), width, HEIGHT), data, this.canvas);
      this.key = key;
    } else {
      if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
      const round = this.plot.data[0][this.plot.cursor.idx];
      this.plot.setData(data);
      if (round !== undefined) queueMicrotask(() => this.moveCursor(data[0].indexOf(round))); // after uPlot has computed the new scale
    }
    this.canvas.setAttribute("aria-label", this.describe(null));
  }

  describe(index) {
    const [rounds, ...series] = this.plot.data;
    const last = index ?? rounds.length - 1;
    const means = series.filter((_, i) => this.plot.series[i + 1].class !== "band");
    const values = this.lines.map((line, i) => `${line.name} ${formatValue(this.panel, means[i].slice(0, last + 1).findLast(isNumber))}`);
    return `${this.panel.title}, ${index === null ? "last values, " : ""}round ${formatCount(rounds[last])}: ${values.join("; ")}`;
  }

  moveCursor(index) {
    if (!this.plot) return;
    const left = index === null || index < 0 ? -10 : this.plot.valToPos(this.plot.data[0][index], "x");
    this.plot.setCursor({ left, top: left < 0 ? -10 : 0 });
  }

  onKey(event) {
    if (!this.plot) return;
    const last = this.plot.data[0].length - 1;
    const here = this.plot.cursor.idx ?? last + 1;
    const step = event.shiftKey ? 10 : 1;
    const targets = { ArrowLeft: here - step, ArrowRight: here + step, Home: 0, End: last };
    if (!(event.key in targets)) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(last, targets[event.key]));
    this.moveCursor(index);
    setText(this.spoken, this.describe(index));
  }

  async download() {
    const subject = runs.length === 1 ? runs[0].name : `${runs.length} runs`;
    const picture = await svgChart(this.panel, this.lines, `${this.panel.title} · ${subject}`, `${this.panel.unit}${this.local ? ` · ${OWNER_ONLY}` : ""}`);
    const address = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" }));
    const file = subject.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "") || "run";
    element("a", { href: address, download: `${file}-${this.panel.metric}${this.local ? "-local-only" : ""}.svg` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }
}

const isNumber = (value) => value !== undefined && value !== null;
const formatValue = (panel, value) => (isNumber(value) ? panel.format(value) : "–");

// uPlot's columns: the rounds of all lines together, then mean, low and high of each line. A logarithmic scale has no
// place for values that are not positive: such means are left out, and such ends of a band are raised to the least value.
function alignedData(panel, lines) {
  const scaled = (values) => values.map((value) => value * panel.factor);
  const least = Math.min(...lines.flatMap((line) => [...line.mean, ...(line.low || [])]).filter((value) => value > 0));
  return uPlot.join(lines.map((line) => {
    const kept = line.rounds.map((_, i) => i).filter((i) => !panel.log || line.mean[i] > 0);
    const column = (values) => scaled(kept.map((i) => (panel.log ? Math.max(values[i], least) : values[i])));
    return [kept.map((i) => line.rounds[i]), column(line.mean), ...(line.low ? [column(line.low), column(line.high)] : [])];
  }));
}

function plotOptions(panel, lines, colours, width, height) {
  const axis = { stroke: colours.soft, font: `12px ${FONT}`, grid: { stroke: colours.grid, width: 1, filter: labelledOnly }, ticks: { stroke: colours.grid, width: 1, size: 4 } };
  const lastOr = (index, values, value) => (index === null && !isNumber(value) ? values.findLast(isNumber) : value);
  const series = [{ label: "round", value: (plot, value) => formatCount(lastOr(plot.cursor.idx, plot.data[0], value)) }];
  const bands = [];
  for (const line of lines) {
    const stroke = colour(colours, line.slot);
    const value = (plot, raw, i) => formatValue(panel, lastOr(plot.cursor.idx, plot.data[i], raw));
    const onePoint = (plot, i) => plot.data[i].filter(isNumber).length === 1;
    series.push({ label: line.mark, stroke, width: 1.8, dash: dash(line.slot), value, points: { show: onePoint, fill: stroke, size: 7 } });
    if (!line.low) continue;
    bands.push({ series: [series.length + 1, series.length], fill: `${stroke}29` });
    series.push(...["low", "high"].map((label) => ({ label, class: "band", width: 0, points: { show: false } })));
  }
  return {
    width, height, series, bands,
    padding: [10, 12, 0, 0],
    cursor: {
      y: false,
      drag: { x: false, y: false },
      hover: { bias: -1 }, // of a round without a value, show the value before it
      bind: { click: () => null }, // a click in the legend would hide the line but not its band
      sync: { key: "rounds", scales: ["x", null] }, // all charts show the same round
      points: { size: (plot, i) => (plot.series[i].class === "band" ? 0 : 8) },
    },
    legend: { markers: { width: 2, dash: (_, i) => (series[i].dash?.length ? "dashed" : "solid") } },
    scales: {
      x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
      y: { distr: panel.log ? 3 : 1 },
    },
    axes: [
      { ...axis, grid: { show: false }, size: 26, incrs: WHOLE_STEPS, values: (_, rounds) => rounds.map(formatCount) },
      { ...axis, size: axisWidth, space: 34, values: (_, values) => values.map((value) => (value === null ? null : tickText(value, values))) },
    ],
  };
}

// Grid lines only where a tick has a label; a logarithmic axis has many more ticks.
const labelledOnly = (plot, splits, axis, ...spacing) => plot.axes[axis].filter(plot, splits, axis, ...spacing);

const axisWidth = (_, texts) => 14 + 7 * Math.max(3, ...(texts || []).map((text) => (text || "").length));

// As many decimals as the distance between two ticks needs.
function tickText(value, all) {
  const ticks = all.filter(isNumber);
  const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : Math.abs(value);
  return step >= 1e-3 && Math.abs(value) < 1e5 ? String(Number(value.toPrecision(12))) : formatNumber(value, 6);
}

// A chart as an SVG file in light colours: uPlot computes scales and ticks, and the same curves are drawn as vectors.
async function svgChart(panel, lines, title, subtitle) {
  const [plotWidth, top, names] = [600, 44, 260];
  const height = Math.max(440, top + 16 * lines.length + 16);
  const data = alignedData(panel, lines);
  const plot = new uPlot(plotOptions(panel, lines, LIGHT, plotWidth, height - top - 16), data);
  await new Promise((laidOut) => queueMicrotask(laidOut));
  const [left, above, right, below] = ["left", "top", "width", "height"].map((side) => plot.bbox[side] / uPlot.pxRatio);
  const x = (value) => left + plot.valToPos(value, "x");
  const y = (value) => top + above + plot.valToPos(value, "y");
  const bottom = top + above + below;
  const text = (at, down, words, more = {}) => svgElement("text", { x: at.toFixed(1), y: down.toFixed(1), fill: LIGHT.ink, ...more }, words);
  const picture = svgElement("svg", { xmlns: "http://www.w3.org/2000/svg", width: plotWidth + names, height, viewBox: `0 0 ${plotWidth + names} ${height}`, "font-family": FONT, "font-size": 12 });
  picture.append(svgElement("rect", { width: "100%", height: "100%", fill: LIGHT.page }), text(8, 18, title, { "font-weight": 600 }), text(8, 34, subtitle, { fill: LIGHT.soft }));
  const [rounds, values] = plot.axes.map((axis) => axis._splits.map((value, i) => [value, axis._values[i]]).filter(([, words]) => words));
  for (const [value, words] of values) {
    picture.append(svgElement("line", { x1: left, x2: left + right, y1: y(value), y2: y(value), stroke: LIGHT.grid }), text(left - 8, y(value) + 4, words, { "text-anchor": "end", fill: LIGHT.soft }));
  }
  for (const [value, words] of rounds) picture.append(text(x(value), bottom + 17, words, { "text-anchor": "middle", fill: LIGHT.soft }));
  picture.append(svgElement("line", { x1: left, x2: left + right, y1: bottom, y2: bottom, stroke: LIGHT.soft }), text(left + right / 2, bottom + 31, "round", { "text-anchor": "middle", fill: LIGHT.soft }));
  const points = (i) => data[0].map((round, k) => [round, data[i][k]]).filter(([, value]) => isNumber(value)).map(([round, value]) => `${x(round).toFixed(1)},${y(value).toFixed(1)}`);
  for (const { series: [high, low], fill } of plot.bands) {
    picture.append(svgElement("polygon", { points: [...points(high), ...points(low).reverse()].join(" "), fill: fill(plot).slice(0, 7), "fill-opacity": 0.16 }));
  }
  const means = plot.series.map((series, i) => i).filter((i) => i > 0 && plot.series[i].class !== "band");
  lines.forEach((line, k) => {
    const stroke = { stroke: colour(LIGHT, line.slot), "stroke-width": 1.8, "stroke-linecap": "round", "stroke-dasharray": dash(line.slot).join(" ") || null };
    const down = top + above + 8 + 16 * k;
    const name = line.name.length > 30 ? `${line.name.slice(0, 29)}…` : line.name;
    picture.append(svgElement("polyline", { points: points(means[k]).join(" "), fill: "none", ...stroke }), swatch(LIGHT, line.slot, plotWidth, down));
    picture.append(text(plotWidth + 32, down + 4, `${name}: ${formatValue(panel, data[means[k]].findLast(isNumber))}`));
  });
  plot.destroy();
  return picture;
}
