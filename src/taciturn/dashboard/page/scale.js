// From values to places on an axis, and the ticks along it.
import { number, power, whole } from "./words.js";

export function linear([low, high], [from, to]) {
  const at = (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  return Object.assign(at, { back: (place) => low + ((place - from) / (to - from || 1)) * (high - low) });
}

export function logarithmic([low, high], range) {
  const inner = linear([Math.log10(low), Math.log10(high)], range);
  return (value) => inner(Math.log10(value));
}

// Room above and below, and never no height at all.
export function widened([low, high], log) {
  if (log) {
    const room = Math.max(0.04 * Math.log10(high / low), low === high ? 0.3 : 0.02);
    return [low / 10 ** room, high * 10 ** room];
  }
  const room = low === high ? Math.abs(low) * 0.1 || 1 : 0.05 * (high - low);
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

export function ticks([low, high], most, whole_ = false) {
  const rough = (high - low) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((factor) => factor * unit).find((candidate) => candidate >= rough);
  if (whole_) step = Math.max(1, step);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(i * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return found.map((value) => ({ value, text: whole_ ? whole(value) : value.toFixed(Math.min(digits, 8)) }));
}

// 1, 10, 100 where there are many powers of ten; 1, 2, 5 between them where there are few.
export function powers([low, high], most) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const found = [];
  for (const factors of [[1, 2, 5], [1, 3], [1]]) {
    found.length = 0;
    for (let e = first; e <= last; e += 1) {
      for (const factor of factors) {
        const value = factor * 10 ** e;
        if (value >= low && value <= high) found.push({ value, text: word(factor, e) });
      }
    }
    if (found.length <= most) break;
  }
  const stride = Math.ceil(found.length / most) || 1;
  if (found.length >= 2) return found.filter((_, i) => i % stride === 0);
  return ticks([low, high], 3).filter(({ value }) => value > 0).map(({ value }) => ({ value, text: number(value) }));
}

function word(factor, exponent) {
  if (exponent >= -3 && exponent <= 3) return number(factor * 10 ** exponent);
  return factor === 1 ? power(exponent) : `${factor}×${power(exponent)}`;
}
