// Dead letters: a page of them, one of them whole, and what is done to them.
import { el, state, table, facts, count, plural, when, button } from './dom.js';

const kFilters = ['route', 'error_code', 'event_type', 'key', 'tenant', 'id'];
const kLabels = { route: 'Route', error_code: 'Error', event_type: 'Event type', key: 'Key', tenant: 'Tenant', id: 'Event id' };

export const filterOf = (values) => Object.fromEntries(
  kFilters.filter((name) => values.get(name)).map((name) => [name, values.get(name)]));

export const filterText = (filter) => {
  const parts = Object.entries(filter).map(([name, value]) => `${kLabels[name].toLowerCase()} ${value}`);
  return parts.length ? parts.join(', ') : 'all of the table';
};

const stateOf = (letter) => ({
  dead: () => state('bad', 'dead'),
  retrying: () => state('warn', 'retry asked for'),
}[letter.state] ?? (() => state('off', letter.state)))();

function form(filter, overview) {
  const names = overview.routes.map((route) => route.name);
  if (filter.route && !names.includes(filter.route)) names.push(filter.route);
  const input = (name, hint) => el('label', {}, kLabels[name],
    el('input', { name, value: filter[name] ?? '', placeholder: hint, autocomplete: 'off', spellcheck: 'false' }));
  return el('form', { class: 'filter', 'data-do-submit': 'filter' },
    el('label', {}, kLabels.route, el('select', { name: 'route' }, el('option', { value: '' }, 'every'),
      names.map((name) => el('option', { value: name, selected: filter.route === name }, name)))),
    input('error_code', 'OB_RECORD_REFUSED'), input('event_type', 'OrderPaid'), input('key', 'o-1'), input('tenant', 'acme'), input('id', ''),
    el('div', { class: 'buttons' }, el('button', { class: 'primary' }, 'Filter'),
      Object.keys(filter).length > 0 && el('a', { class: 'button', href: '#/letters' }, 'Clear')));
}

export function lettersView(page, filter, before, overview) {
  const from = before.length * page.page + 1;
  const to = from + page.letters.length - 1;
  const many = page.total > 0;
  return [
    form(filter, overview),
    el('div', { class: 'bar' },
      el('p', {}, many
        ? [el('strong', {}, plural(page.total, 'dead letter', 'dead letters')), `, ${filterText(filter)}; shown are ${count(from)} to ${count(to)}, the oldest first`]
        : Object.keys(filter).length > 0 ? `No dead letter matches: ${filterText(filter)}.` : 'No dead letters: nothing was given up on.'),
      many && el('div', { class: 'buttons' },
        button('Retry these…', 'change', { 'data-action': 'retry' }),
        button('Discard these…', 'change', { 'data-action': 'discard', class: 'danger' }))),
    many && table('Dead letters', [
      { name: 'Died', cell: (letter) => when(letter.died_at) },
      { name: 'Event', kind: 'data', cell: (letter) => button(letter.id, 'letter',
        { 'data-id': letter.id, 'data-dead-id': letter.dead_id, class: 'link' }, { 'aria-label': `Show ${letter.id}` }) },
      { name: 'Route', kind: 'data', cell: (letter) => letter.route },
      { name: 'Type', kind: 'data', cell: (letter) => letter.event_type ?? '–' },
      { name: 'Key', kind: 'data', cell: (letter) => letter.key ?? letter.aggregate_id ?? '–' },
      { name: 'Tries', right: true, cell: (letter) => count(letter.attempts) },
      { name: 'State', cell: stateOf },
      { name: 'Error', kind: 'words data', cell: (letter) => [el('strong', {}, letter.error_code), ' ', letter.error] },
    ], page.letters, ''),
    many && (page.next !== null || before.length > 0) && el('div', { class: 'pager' },
      button('First', 'page', { 'data-to': 'first' }, { disabled: before.length === 0 }),
      button('Previous', 'page', { 'data-to': 'previous' }, { disabled: before.length === 0 }),
      button('Next', 'page', { 'data-to': 'next' }, { disabled: page.next === null }),
      el('span', { class: 'faint' }, `page ${count(before.length + 1)} of ${count(Math.ceil(page.total / page.page))}`)),
  ];
}

// JSON is laid out where that is short; anything else stays as it is.
function laidOut(text, whole) {
  if (!whole || !/^\s*[[{]/.test(text)) return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function payload(letter) {
  if (letter.payload === null) return el('p', { class: 'empty' }, 'The event has no payload.');
  const whole = letter.payload_shown_bytes === letter.payload_bytes;
  return [
    el('p', {}, plural(letter.payload_bytes, 'byte', 'bytes'),
      !whole && `; the first ${count(letter.payload_shown_bytes)} are shown here (outbox dead show ${letter.id} prints all)`,
      !letter.payload_is_text && '; it is not UTF-8: what is none is shown as \uFFFD'),
    el('pre', { tabindex: '0', 'aria-label': 'Payload' }, laidOut(letter.payload, whole && letter.payload_is_text)),
  ];
}

export function letterView(letter) {
  return [
    el('h2', { id: 'dialog-title' }, 'Dead letter'),
    el('p', { class: 'error data' }, el('strong', {}, letter.error_code), ' ', letter.error),
    facts([
      ['Event', el('span', { class: 'data' }, letter.id)], ['Route', letter.route], ['State', stateOf(letter)],
      ['Died', when(letter.died_at)], ['Occurred', letter.occurred_at && when(letter.occurred_at)], ['Attempts', count(letter.attempts)],
      ['Position', letter.position > 0 ? count(letter.position) : null], ['Type', letter.event_type], ['Key', letter.key],
      ['Aggregate', [letter.aggregate_type, letter.aggregate_id].filter(Boolean).join(' ')], ['Topic', letter.topic],
      ['Tenant', letter.tenant_id], ['Routing key', letter.routing_key],
      ['Schema', [letter.schema_id, letter.schema_version].filter(Boolean).join(' ')],
      ['Headers', letter.headers && el('code', {}, letter.headers)], ['Metadata', letter.metadata && el('code', {}, letter.metadata)],
    ]),
    el('h3', {}, 'Payload'), payload(letter),
    el('div', { class: 'buttons end' },
      el('a', { class: 'button', href: `#/explain?id=${encodeURIComponent(letter.id)}` }, 'Its life'),
      button('Retry…', 'change', { 'data-action': 'retry', 'data-id': letter.id, 'data-route': letter.route }),
      button('Discard…', 'change', { 'data-action': 'discard', 'data-id': letter.id, 'data-route': letter.route, class: 'danger' }),
      button('Close', 'close')),
  ];
}
