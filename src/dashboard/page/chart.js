// Line charts of what this page has seen since it was opened. Why not a library's: docs/dashboard.md.
import { el, svg } from './dom.js';

const kWidth = 460;
const kHeight = 150;
const kLeft = 46; // at least
const kDigit = 6.5;
const kBottom = 20;
const kTop = 8;
const kMost = 900; // samples: half an hour, one each two seconds
const kGapMs = 15_000; // no line over a time without samples

export class History {
  constructor() { this.samples = []; }
  add(values) {
    this.samples.push({ at: Date.now(), values });
    if (this.samples.length > kMost) this.samples.shift();
  }
}

// The next of 1, 2, 5, 10, 20, ... that is not below it.
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999999);
}

function pathOf(samples, name, x, y) {
  let path = '';
  let last = null;
  for (const sample of samples) {
    const value = sample.values[name];
    if (value === null || value === undefined) { last = null; continue; }
    const begins = last === null || sample.at - last > kGapMs;
    path += `${begins ? 'M' : 'L'}${x(sample.at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (begins) path += 'h0.1'; // one sample alone is a dot
    last = sample.at;
  }
  return path;
}

const clock = (ms) => new Date(ms).toISOString().slice(11, 19);

// names: of the series, in their order; show: how a value is written.
export function chart(title, history, names, show, remark) {
  const { samples } = history;
  const shown = names.slice(0, 6);
  const from = samples.length ? samples[0].at : Date.now();
  const to = Math.max(samples.length ? samples.at(-1).at : from, from + 60_000);
  const values = samples.flatMap((sample) => shown.map((name) => sample.values[name] ?? 0));
  const top = roundUp(Math.max(0, ...values));
  const left = Math.max(kLeft, show(top).length * kDigit + 8);
  const x = (at) => left + ((at - from) / (to - from)) * (kWidth - left - 4);
  const y = (value) => kTop + (1 - value / top) * (kHeight - kTop - kBottom);
  const last = samples.at(-1)?.values ?? {};
  const said = shown.map((name) => `${name} ${last[name] === undefined || last[name] === null ? 'none' : show(last[name])}`);
  const drawing = svg('svg', { viewBox: `0 0 ${kWidth} ${kHeight}`, role: 'img',
    'aria-label': `${title}, now: ${said.join(', ') || 'nothing yet'}; highest ${show(Math.max(0, ...values))}` },
  [0, 0.5, 1].map((part) => [
    svg('line', { class: 'grid', x1: left, x2: kWidth - 4, y1: y(top * part), y2: y(top * part) }),
    svg('text', { class: 'tick', x: left - 6, y: y(top * part) + 4, 'text-anchor': 'end' }, show(top * part)),
  ]),
  svg('text', { class: 'tick', x: left, y: kHeight - 4 }, `${clock(from)}Z`),
  svg('text', { class: 'tick', x: kWidth - 4, y: kHeight - 4, 'text-anchor': 'end' }, `${clock(to)}Z`),
  shown.map((name, i) => svg('path', { class: `line s${i}`, d: pathOf(samples, name, x, y) })));
  return el('figure', { class: 'chart' },
    el('figcaption', {}, title),
    drawing,
    el('ul', { class: 'legend' }, shown.map((name, i) => el('li', {},
      svg('svg', { viewBox: '0 0 22 8', class: 'key', 'aria-hidden': 'true' },
        svg('path', { class: `line s${i}`, d: 'M1 4H21' })),
      el('span', {}, name), ' ',
      el('strong', {}, last[name] === undefined || last[name] === null ? '–' : show(last[name]))))),
    names.length > shown.length && el('p', { class: 'faint' }, `and ${names.length - shown.length} more, in the table`),
    remark && el('p', { class: 'faint' }, remark));
}

// The value below which `part` of the events lie, by counts of a histogram; null where there are none.
export function quantile(bounds, counts, part) {
  const all = counts.reduce((sum, one) => sum + one, 0);
  if (all <= 0) return null;
  let below = 0;
  for (let i = 0; i < counts.length; i += 1) {
    if (below + counts[i] >= all * part) {
      if (i >= bounds.length) return bounds.at(-1); // or more: the last bucket has no end
      const low = i === 0 ? 0 : bounds[i - 1];
      return low + (bounds[i] - low) * ((all * part - below) / counts[i]);
    }
    below += counts[i];
  }
  return bounds.at(-1);
}
