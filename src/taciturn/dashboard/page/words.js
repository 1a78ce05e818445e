// Numbers as people read them.
const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

export const OWN = "computed without noise: yours alone";

export function power(exponent) {
  return "10" + [...String(exponent)].map((sign) => RAISED[sign]).join("");
}

export function number(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e").map(Number);
    return mantissa === 1 ? power(exponent) : `${mantissa}×${power(exponent)}`;
  }
  return String(Number(value.toPrecision(digits)));
}

// A number that the server wrote, with its power of ten raised.
export const small = (text) => text.replace(/e([-+]\d+)$/, (_, exponent) => `×${power(Number(exponent))}`);

export const whole = (value) => Math.round(value).toLocaleString("en");

export function testError(value, regression) {
  return regression ? `${number(value)} RMSE` : `${(100 * value).toFixed(2)} %`;
}

export function range([low, high], regression) {
  if (low === high) return testError(low, regression);
  return regression ? `${number(low)} – ${number(high)} RMSE` : `${(100 * low).toFixed(2)} – ${(100 * high).toFixed(2)} %`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function moment(seconds) {
  if (!seconds) return "–";
  const at = new Date(1000 * seconds);
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

// Parties by name where they are few.
export function several(names) {
  return names.length <= 3 ? names.join(", ") : `${names[0]} … ${names[names.length - 1]} (${names.length})`;
}
