// The part of the address behind #: what is open, ticked, sorted and filtered, so that a page can be bookmarked.
export function read() {
  const found = new URLSearchParams(location.hash.slice(1));
  return {
    open: found.get("open") || "",
    ticked: new Set((found.get("with") || "").split(",").filter(Boolean)),
    other: found.get("beside") || "",
    filter: found.get("filter") || "",
    sort: found.get("sort") || "started",
    down: (found.get("order") || "down") === "down",
  };
}

export function write(state) {
  const kept = new URLSearchParams();
  if (state.open) kept.set("open", state.open);
  if (state.ticked.size) kept.set("with", [...state.ticked].join(","));
  if (state.other) kept.set("beside", state.other);
  if (state.filter) kept.set("filter", state.filter);
  if (state.sort !== "started" || !state.down) {
    kept.set("sort", state.sort);
    kept.set("order", state.down ? "down" : "up");
  }
  const text = kept.toString().replaceAll("%2C", ",");
  if (location.search || `#${text}` !== (location.hash || "#")) {
    history.replaceState(null, "", `${location.pathname}${text ? `#${text}` : ""}`); // the token goes out of sight too
  }
}
