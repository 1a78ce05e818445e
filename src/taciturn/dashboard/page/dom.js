// Helpers for HTML and SVG elements. Text is always inserted as text, never parsed as markup.
const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

export const svgElement = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

function fill(created, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) created.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) created.setAttribute(name, value === true ? "" : value);
  }
  created.append(...children.filter((child) => child !== null && child !== undefined));
  return created;
}

// Change a text only if it differs, so that a reader's selection survives.
export function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

// A table with a heading row; cells are text, and each row may carry a class.
export function textTable(headings, rows) {
  const head = element("tr", {}, ...headings.map((name) => element("th", { scope: "col" }, name)));
  const lines = rows.map(({ cells, kind }) => element("tr", { class: kind || null }, ...cells.map((cell, i) => (
    i === 0 ? element("th", { scope: "row" }, String(cell ?? "")) : element("td", {}, String(cell ?? ""))))));
  return element("table", { class: "plain" }, element("thead", {}, head), element("tbody", {}, ...lines));
}
