// Colours that colour-blind eyes tell apart (Okabe and Ito), and lighter ones of the same hues for dark pages.
const LIGHT = {
  lines: ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"],
  ink: "#1c2126", soft: "#566069", grid: "#e4e8eb", page: "#ffffff",
};
const DARK = {
  lines: ["#4A9FD8", "#F07B35", "#1DBE92", "#E59BC6", "#F2B134", "#9AD6F7", "#F2F4F5"],
  ink: "#e8ebed", soft: "#a4aeb6", grid: "#2c3338", page: "#14181b",
};
const DASHES = ["", "7 4", "2 3", "8 3 2 3"];

export const MOST = LIGHT.lines.length * DASHES.length; // no two of so many lines are alike
export const light = LIGHT;

const dark = matchMedia("(prefers-color-scheme: dark)");

export const current = () => (dark.matches ? DARK : LIGHT);

export const whenChanged = (act) => dark.addEventListener("change", act);

export function look(palette, i) {
  const dash = DASHES[Math.floor(i / palette.lines.length) % DASHES.length];
  return { stroke: palette.lines[i % palette.lines.length], "stroke-dasharray": dash || null };
}
