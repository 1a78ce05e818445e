// One chart: lines over rounds, named at their ends, with a mark that reads out the values of a round.
import { drawn } from "./dom.js";
import { look } from "./palette.js";
import { places } from "./places.js";
import { linear, logarithmic, powers, ticks, widened } from "./scale.js";
import { OWN, whole } from "./words.js";

const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const APART = 15; // between two names
const GAP = 12; // from the lines to their names
const SPACE = 6; // between a value and a name
const pen = document.createElement("canvas").getContext("2d");

// lines: [{name, mark, i, rounds, mean, low, high}], panel: {title, unit, log, value}.
export function chart({ panel, lines, palette, width, height, at = null, heading = "", own = false }) {
  const shown = lines.map((line) => visible(line, panel.log)).filter((line) => line.rounds.length);
  const top = heading ? 44 : 10;
  const picture = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT.slice(5), "font-size": 12 });
  if (heading) {
    picture.append(drawn("rect", { width, height, fill: palette.page }));
    picture.append(text(8, 18, heading, palette.ink, { "font-weight": 600 }));
    picture.append(text(8, 34, `${panel.unit}${own ? ` · ${OWN}` : ""}`, palette.soft));
  }
  if (!shown.length) {
    picture.append(text(width / 2, height / 2, "no value above zero to draw", palette.soft, { "text-anchor": "middle" }));
    return { picture, rounds: [] };
  }
  const values = shown.map((line) => valueAt(line, at));
  const labelled = APART * shown.length <= height - top - 30;
  const right = labelled ? Math.max(...shown.map((line) => nameWidth(line.mark, line, panel))) : 12;
  const y = vertical(panel, shown, [height - 34, top]);
  const left = Math.max(...y.ticks.map((tick) => measured(tick.text))) + 14;
  const rounds = [Math.min(...shown.map((line) => line.rounds[0])), Math.max(...shown.map((line) => line.rounds.at(-1)))];
  const x = linear(rounds, [left, width - right]);
  picture.append(...axes({ x, y, rounds, left, right: width - right, bottom: height - 34, palette }));
  for (const line of shown) picture.append(...curve(line, x, y.scale, palette));
  if (at !== null) picture.append(...mark(shown, values, at, x, y.scale, [top, height - 34], palette));
  if (labelled) picture.append(...names(shown, values.map(panel.value), x, y.scale, [top + 4, height - 38], width - right, palette));
  return { picture, rounds: everyRound(shown), round: (place) => x.back(place) };
}

function visible(line, log) {
  const keep = line.mean.map((value, i) => i).filter((i) => !log || line.mean[i] > 0);
  const pick = (values) => values && keep.map((i) => values[i]);
  return { ...line, rounds: pick(line.rounds), mean: pick(line.mean), low: pick(line.low), high: pick(line.high) };
}

// The value in a round, or the last one before it.
export function valueAt(line, round) {
  if (round === null) return line.mean.at(-1);
  let low = 0;
  let high = line.rounds.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (line.rounds[middle] <= round) low = middle;
    else high = middle - 1;
  }
  return line.mean[low];
}

// What a name takes beside the lines, with the widest of its values.
export function nameWidth(name, line, panel) {
  return GAP + measured(longest(line, panel), "600 ") + SPACE + measured(name) + 6;
}

function longest(line, panel) {
  const some = [line.mean[0], line.mean.at(-1), line.mean[Math.floor(line.mean.length / 2)]].map(panel.value);
  return some.reduce((a, b) => (a.length >= b.length ? a : b));
}

const everyRound = (lines) => [...new Set(lines.flatMap((line) => line.rounds))].sort((a, b) => a - b);

function measured(words, weight = "") {
  pen.font = weight + FONT;
  return pen.measureText(words).width;
}

function vertical(panel, lines, range) {
  const edges = lines.flatMap((line) => [line.mean, line.low || [], line.high || []]).flat();
  const finite = panel.log ? edges.filter((value) => value > 0) : edges;
  const reach = finite.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const domain = widened(reach, panel.log);
  const most = Math.max(3, Math.floor((range[0] - range[1]) / 34));
  const scale = (panel.log ? logarithmic : linear)(domain, range);
  const found = panel.log ? powers(domain, most) : ticks(domain.map((value) => value * panel.factor), most).map(
    (tick) => ({ ...tick, value: tick.value / panel.factor }));
  const least = domain[0];
  return { scale: (value) => scale(panel.log && value <= 0 ? least : value), ticks: found };
}

function axes({ x, y, rounds, left, right, bottom, palette }) {
  const found = [];
  for (const { value, text: words } of y.ticks) {
    const place = Math.round(y.scale(value)) + 0.5;
    found.push(drawn("line", { x1: left, x2: right, y1: place, y2: place, stroke: palette.grid }));
    found.push(text(left - 8, place + 4, words, palette.soft, { "text-anchor": "end" }));
  }
  const most = Math.max(3, Math.floor((right - left) / 70));
  const below = rounds[0] === rounds[1] ? [{ value: rounds[0], text: whole(rounds[0]) }] : ticks(rounds, most, true);
  for (const { value, text: words } of below) {
    const place = Math.round(x(value)) + 0.5;
    found.push(drawn("line", { x1: place, x2: place, y1: bottom, y2: bottom + 4, stroke: palette.soft }));
    found.push(text(place, bottom + 17, words, palette.soft, { "text-anchor": "middle" }));
  }
  found.push(drawn("line", { x1: left, x2: right, y1: bottom + 0.5, y2: bottom + 0.5, stroke: palette.soft }));
  found.push(text((left + right) / 2, bottom + 31, "round", palette.soft, { "text-anchor": "middle" }));
  return found;
}

function curve(line, x, y, palette) {
  const path = (values) => values.map((value, i) => `${x(line.rounds[i]).toFixed(1)},${y(value).toFixed(1)}`);
  const ink = look(palette, line.i);
  const found = [];
  if (line.low) {
    const band = [...path(line.high), ...path(line.low).reverse()].join(" ");
    found.push(drawn("polygon", { points: band, fill: ink.stroke, "fill-opacity": 0.16 }));
  }
  const points = path(line.mean);
  if (points.length === 1) {
    const [cx, cy] = points[0].split(",");
    found.push(drawn("circle", { cx, cy, r: 3.5, fill: ink.stroke }));
  } else {
    const stroke = { ...ink, "stroke-width": 1.8, "stroke-linejoin": "round", "stroke-linecap": "round" };
    found.push(drawn("polyline", { class: "line", "data-name": line.name, points: points.join(" "), fill: "none", ...stroke }));
  }
  return found;
}

function mark(lines, values, at, x, y, [top, bottom], palette) {
  const place = x(at);
  const dots = lines.map((line, i) =>
    drawn("circle", { cx: place, cy: y(values[i]), r: 3.5, fill: look(palette, line.i).stroke, stroke: palette.page, "stroke-width": 1.5 }));
  const words = `round ${whole(at)}`;
  const room = measured(words) / 2 + 6;
  return [
    drawn("line", { x1: place, x2: place, y1: top, y2: bottom, stroke: palette.soft, "stroke-dasharray": "2 3" }),
    drawn("rect", { x: place - room, y: bottom + 5, width: 2 * room, height: 17, fill: palette.page }),
    text(place, bottom + 17, words, palette.ink, { "text-anchor": "middle" }),
    ...dots,
  ];
}

function names(lines, words, x, y, [low, high], right, palette) {
  const ends = lines.map((line) => y(line.mean.at(-1)));
  const put = places(ends, APART, low, high);
  return lines.flatMap((line, i) => {
    const ink = { stroke: look(palette, line.i).stroke, "stroke-width": 1 };
    const last = x(line.rounds.at(-1)) + 4;
    const over = drawn("line", { x1: last, x2: Math.max(last, right), y1: ends[i], y2: ends[i], ...ink, "stroke-dasharray": "1 4" });
    const leader = drawn("line", { x1: right + 2, x2: right + GAP - 4, y1: ends[i], y2: put[i], ...ink });
    const value = drawn("tspan", { "font-weight": 600 }, words[i]);
    const name = drawn("tspan", { dx: SPACE }, line.mark);
    const label = drawn("text", { x: right + GAP, y: put[i] + 4, fill: palette.ink, class: "name" }, value, name, drawn("title", {}, line.name));
    return [over, leader, label];
  });
}

function text(x, y, words, fill, more = {}) {
  return drawn("text", { x, y, fill, ...more }, words);
}
