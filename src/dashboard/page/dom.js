// Elements and texts. Nothing here, nor elsewhere in this page, makes markup of a text: whatever an
// event holds is shown as text.

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) node.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  return node;
}

export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

// Makes `old` look as `fresh` and keeps what is the same, so that the focus, a selection and a place
// that was scrolled to outlive the figures. Handlers are therefore found by data-do (see app.js).
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(old.nodeName === 'DETAILS' && name === 'open')) {
      old.removeAttribute(name);
    }
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  // What somebody is typing or choosing stays his.
  if (['INPUT', 'SELECT', 'TEXTAREA'].includes(old.nodeName)) return;
  morphChildren(old, [...fresh.childNodes]);
}

export function morphChildren(old, fresh) {
  const there = [...old.childNodes];
  fresh.forEach((child, i) => {
    if (i < there.length) morph(there[i], child);
    else old.append(child);
  });
  there.slice(fresh.length).forEach((child) => child.remove());
}

const numbers = new Intl.NumberFormat('en-US');
export const count = (number) => numbers.format(number);
export const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

export function age(seconds) {
  if (seconds < 0.001) return '0';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// "2026-11-26 10:34:42Z (3 min ago)"; the logs are in UTC, too.
export function when(text) {
  if (!text) return '–';
  const seconds = (Date.now() - Date.parse(text)) / 1000;
  const ago = seconds >= 0 ? `${age(seconds)} ago` : `in ${age(-seconds)}`;
  return el('span', { class: 'when' },
    el('span', { class: 'nowrap' }, `${text.slice(0, 10)} ${text.slice(11, 19)}Z`), ' ',
    el('span', { class: 'faint nowrap' }, ago));
}

// A state in a word, with a sign that needs no colour. kind: good, warn, bad or off.
const signs = { good: '✓', warn: '▲', bad: '✕', off: '○' };
export const state = (kind, ...words) =>
  el('span', { class: `state ${kind}` }, el('span', { 'aria-hidden': 'true' }, signs[kind]), ' ', words);

// columns: [{ name, right, cell(row) }]. On a phone each row is a card: data-label names its cells.
export function table(label, columns, rows, empty) {
  if (rows.length === 0) return el('p', { class: 'empty' }, empty);
  return el('div', { class: 'scroll', role: 'region', 'aria-label': label, tabindex: '0' },
    el('table', { role: 'table', 'aria-label': label },
      el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, columns.map((column) =>
        el('th', { scope: 'col', role: 'columnheader', class: column.right && 'right' }, column.name)))),
      el('tbody', { role: 'rowgroup' }, rows.map((row) =>
        el('tr', { role: 'row' }, columns.map((column) =>
          el('td', { role: 'cell', class: [column.right && 'right', column.kind].filter(Boolean).join(' ') || null,
            'data-label': column.name }, el('div', {}, column.cell(row)))))))));
}

export const facts = (pairs) => el('dl', { class: 'facts' },
  pairs.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));

export const button = (text, action, data = {}, more = {}) =>
  el('button', { type: 'button', 'data-do': action, ...data, ...more }, text);
