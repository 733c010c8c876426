// Figures as people read them. A figure that is no finite number comes as a text (NaN, Infinity) and is shown as it is.

export const NONE = '–';

export function isNumber(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return NONE;
  if (!isNumber(value)) return String(value);
  if (Number.isInteger(value)) return value.toLocaleString('en');
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(2);
  return value.toLocaleString('en', { maximumFractionDigits: size >= 100 ? 1 : digits });
}

export function percent(value) {
  return isNumber(value) ? `${(100 * value).toFixed(1)} %` : number(value);
}

export function duration(seconds) {
  if (!isNumber(seconds)) return number(seconds);
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = String(Math.floor(seconds % 60)).padStart(2, '0');
  return minutes < 60 ? `${minutes}:${rest}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, '0')}:${rest}`;
}

export function time(seconds) {
  if (!isNumber(seconds)) return NONE;
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? NONE : date.toISOString().replace('T', ' ').slice(0, 19);
}

export function accuracy(measured) {
  if (!measured) return NONE;
  if (!measured.interval) return percent(measured.accuracy);
  const [low, high] = measured.interval;
  return `${percent(measured.accuracy)} (${Math.round(100 * low)}–${Math.round(100 * high)} %, n ${measured.n})`;
}

export function plural(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? '' : 's'}`;
}

export function pretty(text) {
  // Arguments of a tool call are JSON that the model wrote, or anything.
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
