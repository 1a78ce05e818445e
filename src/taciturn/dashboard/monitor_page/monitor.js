// What a site sends, or the state of a coordinator; requested every two seconds and never cached.
import { byId, element, setText } from "./dom.js";

const SECONDS = 1000;
let rows = "";

async function refresh() {
  try {
    const found = await fetch("api/now", { cache: "no-store" });
    if (!found.ok) throw new Error(found.status === 401 ? await found.text() : "no current report: is the command still running?");
    show(await found.json());
    setText(byId("news"), "live");
    byId("news").className = "live";
    document.body.className = "";
  } catch (error) {
    setText(byId("news"), error instanceof TypeError ? "the command that serves this page has ended" : error.message);
    byId("news").className = "";
    document.body.className = "gone";
  }
  setTimeout(refresh, document.hidden ? 10 * SECONDS : 2 * SECONDS);
}

function show(page) {
  document.title = `Taciturn · ${page.title}`;
  setText(byId("title"), page.title);
  setText(byId("state"), page.state);
  byId("state").className = page.ok ? "promise good" : "promise";
  facts(page.facts);
  meter(page.meter);
  setText(byId("note"), page.note);
  byId("nothing").hidden = page.rows.length > 0;
  const now = JSON.stringify([page.headings, page.rows]);
  if (now === rows) return;
  rows = now;
  byId("names").replaceChildren(...page.headings.map((name) => element("th", { class: kind(name), scope: "col" }, name)));
  byId("lines").replaceChildren(...page.rows.map((row) => line(row, page.headings)));
}

const kind = (heading) => (heading === "bytes" || heading === "round" ? "number" : heading === "SHA-256" ? "hash" : "");

function line(row, headings) {
  const cells = row.cells.map((cell, i) => element("td", { class: kind(headings[i]), title: kind(headings[i]) === "hash" ? cell : null }, cell));
  return element("tr", { class: row.ok ? "" : "wrong" }, ...cells);
}

function facts(found) {
  const place = byId("facts");
  if (place.children.length !== 2 * found.length) {
    place.replaceChildren(...found.flatMap(([name]) => [element("dt", {}, name), element("dd")]));
  }
  found.forEach(([, value], i) => setText(place.children[2 * i + 1], value));
}

function meter(found) {
  byId("meter").hidden = !found;
  if (!found) return;
  setText(byId("used"), found.text);
  setText(byId("left"), found.left);
  byId("spent").style.width = `${100 * Math.min(1, found.share)}%`;
  byId("track").setAttribute("aria-valuenow", found.share);
  byId("track").setAttribute("aria-valuetext", `${found.text}, ${found.left}`);
}

refresh();
