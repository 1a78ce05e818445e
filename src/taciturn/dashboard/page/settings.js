// Every setting of the open run, beside another run's.
import { askFor } from "./ask.js";
import { byId, element } from "./dom.js";

let shown = "";
let found = [];
let names = ["", ""];

byId("only").addEventListener("change", () => draw());

export function showSettings(row, rows, other, choose) {
  choices(row, rows, other, choose);
  const key = `${row.id} ${other}`;
  if (!byId("settings").open || key === shown) return;
  shown = key;
  names = [row.name, rows.find((one) => one.id === other)?.name || ""];
  askFor(row.id, "settings", other ? `?other=${other}` : "").then((answer) => {
    if (shown !== key) return;
    found = (answer.settings || []).sort((a, b) => Boolean(b.differs) - Boolean(a.differs));
    if (answer.damaged) byId("settings-table").replaceChildren(element("p", { class: "bad" }, answer.damaged));
    else draw();
  }).catch(() => { shown = ""; });
}

function choices(row, rows, other, choose) {
  const place = byId("other");
  const others = rows.filter((one) => one.id !== row.id && one.state !== "damaged");
  const key = others.map((one) => one.id).join() + row.id;
  if (place.dataset.key !== key) {
    place.dataset.key = key;
    place.replaceChildren(element("option", { value: "" }, "no other run"), ...others.map((one) => element("option", { value: one.id }, one.name)));
    place.onchange = () => choose(place.value);
  }
  place.value = other;
  byId("only").disabled = !other;
}

function draw() {
  const compared = Boolean(names[1]);
  const only = compared && byId("only").checked;
  const rows = found.filter((one) => !only || one.differs);
  const headings = ["setting", names[0], ...(compared ? [names[1]] : [])].map((name) => element("th", { scope: "col" }, name));
  const lines = rows.map((one) => element("tr", { class: one.differs ? "differs" : null },
    element("th", { scope: "row" }, one.name), element("td", {}, one.value), compared ? element("td", {}, one.other) : null));
  const table = element("table", { class: "plain" }, element("thead", {}, element("tr", {}, ...headings)), element("tbody", {}, ...lines));
  byId("settings-table").replaceChildren(rows.length ? table : element("p", {}, "The settings are the same."));
}
