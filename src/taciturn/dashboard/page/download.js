// Files for the reader: made here, or by the server.
import { element } from "./dom.js";

export function saveSvg(picture, name) {
  picture.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const text = new XMLSerializer().serializeToString(picture);
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export function csvLink(ids, local, text) {
  const query = ids.map((id) => `run=${id}`).join("&");
  return element("a", { href: `api/metrics.csv?${query}${local ? "&local=1" : ""}`, download: "" }, text);
}

export const plainName = (text) => text.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "") || "run";
