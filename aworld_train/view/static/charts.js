// Curves over steps, drawn by uPlot. The colours are those of the style sheet, so they follow the reader's scheme.
import uPlot from './vendor/uplot.js';
import { useEffect, useRef } from './vendor/hooks.js';
import { div, h3 } from './elements.js';
import { isNumber, number } from './format.js';

const HEIGHT = 190;
const COLOURS = 8;

export function Chart({ title, lines, stacked = false, format = number, range = null }) {
  // lines: [{label, points: [[x, y], ...], band: [[x, low, high], ...]}]
  const place = useRef(null);
  const key = JSON.stringify([lines, stacked]);
  useEffect(() => {
    const element = place.current;
    let plot = null;
    const draw = () => {
      plot?.destroy();
      plot = new uPlot(options(element, lines, stacked, format, range), columns(lines, stacked), element);
    };
    draw();
    const sizes = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    sizes.observe(element);
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    scheme.addEventListener('change', draw);
    return () => {
      sizes.disconnect();
      scheme.removeEventListener('change', draw);
      plot.destroy();
    };
  }, [key]);
  return div({ class: 'chart' }, h3(title), div({ class: 'plot', ref: place, role: 'img', 'aria-label': described(title, lines) }));
}

function described(title, lines) {
  const parts = lines.map(({ label, points }) => {
    const last = points[points.length - 1];
    return last ? `${label}: ${points.length} points, last ${number(last[1])} at step ${last[0]}` : `${label}: none`;
  });
  return `${title}. ${parts.join('; ')}`;
}

function columns(lines, stacked) {
  const steps = [...new Set(lines.flatMap((line) => [...line.points, ...(line.band ?? [])].map((point) => point[0])))];
  steps.sort((one, other) => one - other);
  const found = [steps];
  let below = steps.map(() => 0);
  for (const line of lines) {
    const values = new Map(line.points.map(([step, value]) => [step, isNumber(value) ? value : null]));
    let column = steps.map((step) => values.get(step) ?? (stacked ? 0 : null));
    if (stacked) {
      column = column.map((value, i) => value + below[i]);
      below = column;
    }
    found.push(column);
    if (line.band) {
      for (const place of [2, 1]) {
        const bounds = new Map(line.band.map((point) => [point[0], point[place]]));
        found.push(steps.map((step) => (isNumber(bounds.get(step)) ? bounds.get(step) : null)));
      }
    }
  }
  return found;
}

function options(element, lines, stacked, format, range) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const series = [{ label: 'step', value: (_, step) => (step === null ? '–' : String(step)) }];
  const bands = [];
  for (const [number, line] of lines.entries()) {
    const stroke = colour(`--line-${number % COLOURS}`);
    const own = new Map(line.points);
    series.push({
      label: line.label,
      stroke,
      width: stacked ? 1 : 1.75,
      fill: stacked ? `${stroke}a0` : undefined,
      spanGaps: true,
      points: { show: !stacked && line.points.length < 40, size: 5, fill: colour('--card') },
      value: (plot, value, _, at) => format(stacked ? own.get(plot.data[0][at]) ?? null : value),
    });
    // The area of a line ends where the one below it begins.
    if (stacked && number > 0) bands.push({ series: [number + 1, number] });
    if (line.band) {
      bands.push({ series: [series.length, series.length + 1], fill: colour(`--band-${number % COLOURS}`) });
      for (const bound of ['high', 'low']) {
        series.push({ label: `${line.label} ${bound}`, stroke: `${stroke}70`, width: 0.75, spanGaps: true, points: { show: line.points.length < 40, size: 3 }, value: (_, value) => format(value) });
      }
    }
  }
  const axis = {
    stroke: colour('--dim'),
    grid: { stroke: colour('--rule'), width: 1 },
    ticks: { stroke: colour('--rule'), width: 1, size: 4 },
    font: '11px system-ui, sans-serif',
  };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    series,
    bands,
    scales: { x: { time: false, range: (plot, low, high) => (plot.data[0].length === 1 ? [plot.data[0][0] - 1, plot.data[0][0] + 1] : [low, high]) }, y: { range: range ?? spread(stacked) } },
    axes: [
      { ...axis, size: 28, incrs: [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000] },
      { ...axis, size: 54, values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    cursor: { sync: { key: 'steps' }, points: { size: 6 } },
    legend: { live: true },
  };
}

function spread(stacked) {
  return (_, low, high) => {
    if (!isNumber(low) || !isNumber(high)) return [0, 1];
    if (stacked) return [0, high || 1];
    if (low === high) return low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
    const margin = 0.06 * (high - low);
    return [low >= 0 && low - margin < 0 ? 0 : low - margin, high + margin];
  };
}
