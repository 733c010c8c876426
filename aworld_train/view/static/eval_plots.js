// Plots of an evaluation: shares with their intervals, curves over k, histograms, calibration. Colours are those of the
// style sheet, so that they follow the reader's scheme.
import { h } from './vendor/preact.js';
import { div, h3, span, svg } from './elements.js';
import { isNumber, number, percent } from './format.js';

export function Interval({ value, interval, label = '' }) {
  // A share between 0 and 1, and its 95 % interval.
  if (!isNumber(value)) return span({ class: 'interval none', 'aria-label': `${label}: no score` });
  const [low, high] = interval;
  return span(
    { class: 'interval', role: 'img', 'aria-label': `${label}: ${percent(value)}, 95 % interval ${percent(low)} to ${percent(high)}` },
    span({ class: 'range', style: { left: `${100 * low}%`, width: `${100 * (high - low)}%` } }),
    span({ class: 'point', style: { left: `${100 * value}%` } }),
  );
}

const WIDTH = 300;
const HEIGHT = 160;
const LEFT = 30;
const BOTTOM = 22;
const TOP = 8;

export function Curves({ title, series }) {
  // series: [{label, line, values: {k: share}}]; the ks stand at equal distances, as each doubles the one before.
  const ks = Object.keys(series[0].values).map(Number);
  const right = WIDTH - 68;
  const x = (i) => LEFT + 8 + ((right - LEFT - 16) * i) / Math.max(1, ks.length - 1);
  const y = (share) => TOP + (HEIGHT - BOTTOM - TOP) * (1 - share);
  const lines = series.map(({ label, line, values }) => {
    const points = ks.map((k, i) => [x(i), values[k]]).filter(([, share]) => isNumber(share));
    return { label, line, points: points.map(([at, share]) => [at, y(share)]), last: points.at(-1)?.[1] };
  });
  const ends = apart(lines.filter(({ points }) => points.length).map((each) => ({ ...each, at: each.points.at(-1)[1] })));
  return figure(
    title,
    `${title}. ${series.map(({ label, values }) => `${label}: ${Object.entries(values).map(([k, share]) => `${percent(share)} at ${k}`).join(', ')}`).join('; ')}`,
    [0, 0.25, 0.5, 0.75, 1].map((share) => gridLine(share, y(share), right)),
    ks.map((k, i) => text({ x: x(i), y: HEIGHT - 8, class: 'tick middle' }, `k = ${k}`)),
    lines.map(({ label, line, points }) => h('path', { key: label, class: `curve stroke-${line}`, d: path(points) })),
    lines.flatMap(({ label, line, points }) => points.map(([cx, cy], i) => h('circle', { key: `${label} ${i}`, class: `fill-${line}`, cx, cy, r: 3.2 }))),
    ends.map(({ label, line, at, last }) => text({ x: right + 2, y: at + 4, class: `ink-${line} end` }, `${label} ${Math.round(100 * last)}`)),
  );
}

function apart(ends) {
  // Labels at the ends of curves, moved so that none covers another.
  const ordered = ends.sort((one, other) => one.at - other.at);
  ordered.forEach((each, i) => {
    if (i) each.at = Math.max(each.at, ordered[i - 1].at + 13);
  });
  return ordered;
}

export function Histogram({ title, values, format = number, line = 0 }) {
  // What lies beyond the 99th percentile is in the last bar, so that one slow attempt does not hide the others.
  const sorted = values.filter(isNumber).sort((one, other) => one - other);
  if (!sorted.length) return null;
  const at = (share) => percentile(sorted, share);
  const bars = 28;
  const low = Math.min(0, sorted[0]);
  const top = at(0.99) || sorted.at(-1) || 1;
  const step = niceStep((top - low) / bars);
  const count = Math.max(1, Math.ceil((top - low) / step));
  const heights = new Array(count + 1).fill(0);
  for (const value of sorted) heights[Math.min(count, Math.floor((value - low) / step))] += 1;
  const beyond = heights.at(-1);
  const shown = beyond ? heights : heights.slice(0, -1);
  const most = Math.max(...shown);
  const width = (WIDTH - LEFT - 8) / shown.length;
  const x = (value) => LEFT + Math.min(shown.length, (value - low) / step) * width;
  const floor = HEIGHT - BOTTOM;
  const end = low + shown.length * step;
  const apart = niceStep((end - low) / 5);
  const ticks = Array.from({ length: Math.floor((end - low) / apart) + 1 }, (_, i) => low + i * apart);
  return figure(
    title,
    `${title}. ${sorted.length} attempts, median ${format(at(0.5))}, 90th percentile ${format(at(0.9))}`,
    [0, 0.5, 1].map((share) => h('line', { key: `g${share}`, class: 'grid', x1: LEFT, x2: WIDTH - 8, y1: floor - share * (floor - TOP - 14), y2: floor - share * (floor - TOP - 14) })),
    [0.5, 1].map((share) => text({ x: LEFT - 5, y: floor - share * (floor - TOP - 14) + 4, class: 'tick right-end' }, number(Math.round(share * most)))),
    shown.map((height, i) => {
      const size = ((floor - TOP - 14) * height) / most;
      const name = i === count ? `${format(low + i * step)} and more` : `${format(low + i * step)} to ${format(low + (i + 1) * step)}`;
      return h('rect', { key: i, class: `bar fill-${line}`, x: LEFT + i * width + 0.5, y: floor - size, width: Math.max(1, width - 1), height: size }, h('title', null, `${name}: ${number(height)}`));
    }),
    ticks.map((value, i) => text({ key: value, x: x(value), y: HEIGHT - 8, class: `tick ${i ? (x(value) > WIDTH - 20 ? 'right-end' : 'middle') : ''}` }, format(value))),
    [
      ['median', at(0.5)],
      ['p90', at(0.9)],
    ].map(([name, value]) => [h('line', { key: name, class: 'marker', x1: x(value), x2: x(value), y1: TOP + 6, y2: floor }), text({ ...beside(x(value)), y: name === 'p90' ? TOP + 13 : TOP + 2 }, `${name} ${format(value)}`)]),
  );
}

function percentile(sorted, share) {
  // Between two values that lie around it, as `evaluation.statistics` has it.
  const place = share * (sorted.length - 1);
  const below = Math.floor(place);
  return sorted[below] + (place - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
}

function beside(x) {
  // A note stands to the right of its line, unless it would end outside.
  return x > WIDTH - 70 ? { x: x - 4, class: 'note right-end' } : { x: x + 4, class: 'note' };
}

function niceStep(step) {
  const power = 10 ** Math.floor(Math.log10(step || 1));
  return power * ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= step) ?? 10);
}

export function CalibrationPlot({ title, bins }) {
  const size = HEIGHT - BOTTOM - TOP;
  const left = LEFT + 30;
  const x = (share) => left + size * share;
  const y = (share) => TOP + size * (1 - share);
  const most = Math.max(...bins.map((bin) => bin.n));
  return figure(
    title,
    `${title}. ${bins.map((bin) => `confidence ${percent(bin.confidence)}: ${percent(bin.accuracy)} right`).join('; ')}`,
    [0, 0.5, 1].map((share) => [
      h('line', { class: 'grid', x1: x(0), x2: x(1), y1: y(share), y2: y(share) }),
      h('line', { class: 'grid', x1: x(share), x2: x(share), y1: y(0), y2: y(1) }),
      text({ x: left - 5, y: y(share) + 4, class: 'tick right-end' }, `${100 * share}`),
      text({ x: x(share), y: HEIGHT - 8, class: 'tick middle' }, `${100 * share}`),
    ]),
    h('line', { class: 'ideal', x1: x(0), y1: y(0), x2: x(1), y2: y(1) }),
    h('path', { class: 'curve stroke-0', d: path(bins.map((bin) => [x(bin.confidence), y(bin.accuracy)])) }),
    bins.map((bin, i) => h('circle', { key: i, class: 'fill-0', cx: x(bin.confidence), cy: y(bin.accuracy), r: 2.5 + 2.5 * Math.sqrt(bin.n / most) }, h('title', null, `${number(bin.n)} answers: stated ${percent(bin.confidence)}, right ${percent(bin.accuracy)}`))),
    text({ x: x(1) + 12, y: y(0) - 2, class: 'note' }, 'stated →'),
    text({ x: x(1) + 12, y: y(1) + 8, class: 'note' }, '↑ right'),
  );
}

export function Shares({ parts, total }) {
  // Parts of a whole as one bar.
  return div(
    { class: 'shares', role: 'img', 'aria-label': parts.map(([name, count]) => `${name} ${count} of ${total}`).join(', ') },
    parts.filter(([, count]) => count).map(([name, count, kind]) => span({ key: name, class: `share ${kind}`, style: { width: `${(100 * count) / total}%` }, title: `${name}: ${number(count)} of ${number(total)}` })),
  );
}

function figure(title, description, ...children) {
  return div({ class: 'chart' }, h3(title), svg({ class: 'drawing', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': description }, children));
}

function gridLine(share, at, right) {
  return [h('line', { class: 'grid', x1: LEFT, x2: right, y1: at, y2: at }), text({ x: LEFT - 5, y: at + 4, class: 'tick right-end' }, `${100 * share}`)];
}

function path(points) {
  return points.map(([x, y], i) => `${i ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');
}

function text(attributes, content) {
  return h('text', attributes, content);
}
