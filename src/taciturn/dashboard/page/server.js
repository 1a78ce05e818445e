// Requests to the dashboard's server. Replies are never cached by the browser.
export class AccessRefused extends Error {}

let etag = "";
let firstRequest = request("api/runs"); // starts before the rest of the page has loaded
firstRequest.catch(() => {}); // fetchRuns() reports a failure

async function request(address, headers = {}) {
  const reply = await fetch(address, { cache: "no-store", headers });
  if (reply.status === 401 || reply.status === 421) throw new AccessRefused(await reply.text());
  if (!reply.ok && reply.status !== 304) throw new Error(`${address}: ${reply.status}`);
  return reply;
}

// The list of runs, or null if it has not changed since the last request.
export async function fetchRuns() {
  const pending = firstRequest || request("api/runs", etag ? { "If-None-Match": etag } : {});
  firstRequest = null;
  const reply = await pending;
  if (reply.status === 304) return null;
  etag = reply.headers.get("etag");
  return reply.json();
}

export async function fetchDetail(id, detail, query = "") {
  return (await request(`api/runs/${id}/${detail}${query}`)).json();
}

// The server answers slow requests with its newest result and `pending`: repeat until the result is current.
export async function fetchUntilDone(id, detail, show, isWanted) {
  for (let wait = 150; isWanted(); wait = Math.min(2 * wait, 2000)) {
    const reply = await fetchDetail(id, detail);
    if (!isWanted()) return;
    show(reply);
    if (!reply.pending) return;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

export function csvAddress(ids, local) {
  return `api/metrics.csv?${ids.map((id) => `run=${id}`).join("&")}${local ? "&local=1" : ""}`;
}
