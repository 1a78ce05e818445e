// Numbers, times and lists as text.
const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

const powerOfTen = (exponent) => "10" + [...String(exponent)].map((character) => SUPERSCRIPT[character]).join("");

export function formatNumber(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e").map(Number);
    return mantissa === 1 ? powerOfTen(exponent) : `${mantissa}×${powerOfTen(exponent)}`;
  }
  return String(Number(value.toPrecision(digits)));
}

// The server writes small numbers as 1.2e-05; show the exponent as a superscript.
export const formatExponent = (text) => text.replace(/e([-+]\d+)$/, (_, exponent) => `×${powerOfTen(Number(exponent))}`);

export const formatCount = (value) => Math.round(value).toLocaleString("en");

export function formatErrorRange([low, high], regression) {
  const [first, last] = regression ? [low, high].map((value) => formatNumber(value)) : [low, high].map((value) => (100 * value).toFixed(2));
  return `${low === high ? first : `${first} – ${last}`} ${regression ? "RMSE" : "%"}`;
}

export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function formatTime(seconds) {
  if (!seconds) return "–";
  const time = new Date(1000 * seconds);
  const two = (value) => String(value).padStart(2, "0");
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${two(time.getHours())}:${two(time.getMinutes())}`;
}

// Names of up to three parties; of more, the first, the last and the count.
export function formatParties(names) {
  return names.length <= 3 ? names.join(", ") : `${names[0]} … ${names[names.length - 1]} (${names.length})`;
}
