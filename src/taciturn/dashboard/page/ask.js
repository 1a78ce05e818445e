// What the server is asked; figures are never kept by the browser.
export class Refused extends Error {}

let tag = "";
let first = answer("api/runs"); // on its way before the rest of the page is here
first.catch(() => {}); // whoever waits for it is told

async function answer(address, headers = {}) {
  const found = await fetch(address, { cache: "no-store", headers });
  if (found.status === 401 || found.status === 421) throw new Refused(await found.text());
  if (!found.ok && found.status !== 304) throw new Error(`${address}: ${found.status}`);
  return found;
}

// The list of runs, or null where it has not changed since it was last asked for.
export async function askForRuns() {
  const asked = first || answer("api/runs", tag ? { "If-None-Match": tag } : {});
  first = null;
  const found = await asked;
  if (found.status === 304) return null;
  tag = found.headers.get("etag");
  return found.json();
}

export async function askFor(id, what, query = "") {
  const found = await answer(`api/runs/${id}/${what}${query}`);
  return found.json();
}

// Where a server computes, it gives what it has and says that more is on its way: it is asked again until all is there.
export async function askUntilDone(id, what, show, still) {
  for (let wait = 150; still(); wait = Math.min(2 * wait, 2000)) {
    const found = await askFor(id, what);
    if (!still()) return;
    show(found);
    if (!found.pending) return;
    await new Promise((go) => setTimeout(go, wait));
  }
}
