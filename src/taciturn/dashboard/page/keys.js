// What keys do.
import { byId } from "./dom.js";

export function listen(table, state, act) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    const field = event.target.closest("input[type=search], select, summary, button, a, .chart");
    if (event.key === "Escape" && event.target === byId("filter")) {
      act.filter("");
      table.focus(table.order[0]);
    } else if (event.target === byId("filter")) {
      if (event.key !== "Enter" && event.key !== "ArrowDown") return;
      table.focus(table.order[0]);
    } else if (event.key === "/") {
      byId("filter").focus();
      byId("filter").select();
    } else if (event.key === "?") {
      byId("keys").showModal();
    } else if (event.key === "j" || (event.key === "ArrowDown" && !field)) {
      table.step(1, state.open);
    } else if (event.key === "k" || (event.key === "ArrowUp" && !field)) {
      table.step(-1, state.open);
    } else if (event.key === "Enter" && table.focused() && !field) {
      act.open(table.focused());
    } else if (event.key === " " && table.focused() && !field) {
      act.tick(table.focused());
    } else {
      return;
    }
    event.preventDefault();
  });
  byId("help").addEventListener("click", () => byId("keys").showModal());
}
