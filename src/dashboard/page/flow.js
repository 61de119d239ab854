// Table -> routes -> destinations, with the charts and who relays.
import { el, state, table, count, plural, age, when } from './dom.js';
import { chart } from './chart.js';

// As `outbox status` marks them, and the alerts of the operating guide.
const kBacklogWarns = 1_000;
const kBacklogBad = 10_000;
const kOldestWarnsS = 5;

// Since when nobody has told anything of a route.
const kStaleMs = 30_000;

// Relays of some tenants each have leases of their own.
const leads = (lease, route) => lease.held && (lease.routes.length === 0 || lease.routes.includes(route.name));
const isLed = (route, overview) => overview.leases.some((lease) => leads(lease, route));
const tenantsOf = (lease) => (lease.tenants.length > 0 ? ` for the tenants ${lease.tenants.join(', ')}` : '');

export function routeState(route, overview) {
  if (route.retired) return ['off', 'no route any more'];
  if (!isLed(route, overview)) return ['warn', 'no relay runs'];
  if (!route.circuit) return ['off', 'not reported yet'];
  if (route.circuit === 'open') return ['bad', 'destination is down'];
  if (route.circuit === 'half_open') return ['warn', 'trying again'];
  if (Date.parse(overview.now) - Date.parse(route.updated_at) > kStaleMs) return ['warn', 'no report lately'];
  if (route.failing > 0) return ['warn', `sending; ${plural(route.failing, 'event', 'events')} failing`];
  return ['good', 'sending'];
}

const ledgerOf = (overview, name) => overview.ledgers.filter((one) => one.name === name);
const unfinishedOf = (overview, name) => ledgerOf(overview, name).reduce((sum, one) => sum + one.unfinished, 0);
const unfinishedText = (overview, name) =>
  count(unfinishedOf(overview, name)) + (ledgerOf(overview, name).some((one) => one.unfinished_is_more) ? '+' : '');

// What somebody should know first, the worst first.
export function troubles(overview) {
  const found = [];
  const add = (kind, href, ...text) => found.push({ kind, href, text });
  if (overview.has_source && !overview.lease.held) {
    add(overview.backlog > 0 ? 'bad' : 'warn', '#/flow', overview.backlog > 0
      ? `No relay runs, and ${plural(overview.backlog, 'event waits', 'events wait')}.` : 'No relay runs.');
  } else {
    for (const lease of overview.leases.filter((one) => !one.held)) {
      add('warn', '#/flow', `No relay runs${tenantsOf(lease)}.`);
    }
  }
  for (const route of overview.routes.filter((one) => !one.retired)) {
    if (isLed(route, overview) && route.circuit === 'open') {
      add('bad', '#/flow', `The destination of route ${route.name} is down: ${route.last_error}`);
    }
  }
  if (overview.dead > 0) add('bad', '#/letters', `${plural(overview.dead, 'event was', 'events were')} given up on: dead letters to be looked at.`);
  if (overview.backlog > kBacklogWarns) {
    add(overview.backlog > kBacklogBad ? 'bad' : 'warn', '#/flow', `${count(overview.backlog)} events wait to be sent.`);
  }
  if (overview.backlog > 0 && overview.oldest_age_s > kOldestWarnsS) {
    add('warn', '#/held', `The oldest event that waits is ${age(overview.oldest_age_s)} old.`);
  }
  if (overview.failing > 0) add('warn', '#/held', `${plural(overview.failing, 'event has', 'events have')} failed and will be tried again.`);
  for (const standby of overview.standbys.filter((one) => one.other_routes)) {
    add('warn', '#/flow', `The relay ${standby.owner}, which stands by, has other routes: ${standby.routes.join(', ')}.`);
  }
  const stuck = overview.sagas.filter((one) => one.state === 'stuck').reduce((sum, one) => sum + one.count, 0);
  if (stuck > 0) add('bad', '#/sagas', `${plural(stuck, 'saga is', 'sagas are')} stuck.`);
  if (overview.remark) add('warn', '#/flow', overview.remark);
  if (overview.webhooks?.remark) add('warn', '#/flow', overview.webhooks.remark);
  const order = ['bad', 'warn'];
  return found.sort((one, other) => order.indexOf(one.kind) - order.indexOf(other.kind));
}

function tile(name, value, kind, word) {
  return el('div', { class: `tile ${kind}` },
    el('dt', {}, name), el('dd', {}, el('strong', {}, value), word && state(kind, word)));
}

function tiles(overview) {
  const backlogKind = overview.backlog > kBacklogBad ? 'bad' : overview.backlog > kBacklogWarns ? 'warn' : 'good';
  const old = overview.backlog > 0 && overview.oldest_age_s > kOldestWarnsS;
  return el('dl', { class: 'tiles' },
    tile('Backlog', count(overview.backlog), backlogKind, { good: 'fine', warn: 'high', bad: 'very high' }[backlogKind]),
    tile('Oldest event', overview.backlog > 0 ? age(overview.oldest_age_s) : '–', old ? 'warn' : 'good', old ? 'late' : 'fine'),
    tile('Sent', `${count(Math.round(overview.rate_per_s))}/s`, 'none', null),
    tile('Failing', count(overview.failing), overview.failing > 0 ? 'warn' : 'good', overview.failing > 0 ? 'tried again' : 'none'),
    tile('Dead', count(overview.dead), overview.dead > 0 ? 'bad' : 'good', overview.dead > 0 ? 'look' : 'none'),
    tile('Delayed', count(overview.scheduled), 'none', null));
}

function flow(overview) {
  const routes = overview.routes.filter((route) => !route.retired);
  return el('section', {},
    el('h3', {}, 'From the table to its destinations'),
    el('div', { class: 'flow' },
      el('div', { class: 'box source' },
        el('span', { class: 'faint' }, 'table'), el('strong', { class: 'data' }, overview.source),
        el('span', {}, `${count(overview.backlog)} waiting`)),
      routes.length === 0
        ? el('p', { class: 'empty' }, 'No route is known yet: no relay has served this table.')
        : el('ol', { class: 'lanes' }, routes.map((route) => {
          const [kind, word] = routeState(route, overview);
          return el('li', { class: `lane ${kind}` },
            el('span', { class: 'arrow', 'aria-hidden': 'true' }, '→'),
            el('div', { class: 'box' },
              el('span', { class: 'faint' }, 'route'), el('strong', { class: 'data' }, route.name),
              state(kind, word),
              el('span', {}, `${unfinishedText(overview, route.name)} waiting`, ', ',
                `${count(Math.round(route.rate_per_s))}/s`)),
            el('span', { class: 'arrow', 'aria-hidden': 'true' }, '→'),
            el('div', { class: 'box' },
              el('span', { class: 'faint' }, 'destination'),
              ledgerOf(overview, route.name).slice(0, 1).map((one) =>
                el('strong', { class: 'data' }, one.destination ?? 'not met yet')),
              el('span', {}, `${count(route.published_total)} sent`),
              route.dead > 0 && el('a', { href: `#/letters?route=${encodeURIComponent(route.name)}` },
                plural(route.dead, 'dead letter', 'dead letters'))));
        }))));
}

function routesTable(overview) {
  return el('section', {},
    el('h3', {}, 'Routes'),
    table('Routes', [
      { name: 'Route', kind: 'data', cell: (route) => el('strong', {}, route.name) },
      { name: 'State', cell: (route) => state(...routeState(route, overview)) },
      { name: 'Waiting', right: true, cell: (route) => unfinishedText(overview, route.name) },
      { name: 'Per second', right: true, cell: (route) => count(Math.round(route.rate_per_s)) },
      { name: 'Failing', right: true, cell: (route) => count(route.failing) },
      { name: 'Dead', right: true, cell: (route) => count(route.dead) },
      { name: 'Reads by', cell: (route) => [route.path || '–', route.path_reason && el('span', { class: 'faint small block' }, route.path_reason)] },
      { name: 'Last error', kind: 'words', cell: (route) => (route.last_error
        ? [el('span', { class: 'data' }, route.last_error), ' ', el('span', { class: 'small block' }, when(route.last_error_at))]
        : el('span', { class: 'faint' }, 'none')) },
    ], overview.routes, 'No route is known yet.'));
}

function relays(overview) {
  const rows = [];
  for (const lease of overview.leases.filter((one) => one.owner)) {
    rows.push({ owner: lease.owner, kind: lease.held ? 'good' : 'off', word: (lease.held ? 'leads' : 'led last') + tenantsOf(lease),
      since: lease.acquired_at, more: `epoch ${lease.epoch}${lease.held ? `; its lease lasts ${age(lease.expires_in_ms / 1000)} more, unless renewed` : ''}` });
  }
  for (const standby of overview.standbys) {
    rows.push({ owner: standby.owner, kind: standby.other_routes ? 'warn' : 'good',
      word: standby.other_routes ? 'stands by, with other routes' : 'stands by', since: standby.seen_at,
      more: `routes: ${standby.routes.join(', ')}` });
  }
  return el('section', {},
    el('h3', {}, 'Relays'),
    table('Relays', [
      { name: 'Relay', kind: 'data', cell: (row) => el('strong', {}, row.owner) },
      { name: 'State', cell: (row) => state(row.kind, row.word) },
      { name: 'Since, or seen', cell: (row) => when(row.since) },
      { name: 'More', cell: (row) => row.more },
    ], rows, 'None has led this table yet: start one with outbox relay.'));
}

function webhooks(overview) {
  if (!overview.webhooks) return null;
  const { endpoints } = overview.webhooks;
  const worth = endpoints.filter((one) => one.state !== 'enabled' || one.waiting + one.dead > 0 || one.last_error);
  return el('section', {},
    el('h3', {}, 'Webhooks'),
    el('p', {}, overview.webhooks.delivered_by ? `Delivered by ${overview.webhooks.delivered_by}. ` : 'No relay delivers them. ',
      `${plural(endpoints.length, 'endpoint', 'endpoints')}; those with nothing to say are left out.`),
    table('Webhooks', [
      { name: 'Endpoint', kind: 'data', cell: (one) => one.id },
      { name: 'State', cell: (one) => state(one.state !== 'enabled' ? 'off' : one.last_error ? 'warn' : 'good', one.state) },
      { name: 'Waiting', right: true, cell: (one) => count(one.waiting) },
      { name: 'Dead', right: true, cell: (one) => count(one.dead) },
      { name: 'Failing since', cell: (one) => when(one.failing_since) },
      { name: 'Last error', kind: 'words data', cell: (one) => one.last_error ?? '–' },
    ], worth.slice(0, 50), 'All are well.'));
}

export function flowView(overview, history) {
  const names = overview.routes.filter((route) => !route.retired).map((route) => route.name);
  const perSecond = (value) => (value >= 10 || value === 0 ? count(Math.round(value)) : value.toFixed(1));
  const ms = (value) => age(value / 1000);
  return [
    tiles(overview),
    flow(overview),
    el('section', {},
      el('h3', {}, 'Since this page was opened'),
      el('div', { class: 'charts' },
        chart('Sent per second', history.rate, names, perSecond),
        chart('Events that wait', history.backlog, ['backlog', 'failing'], (value) => count(Math.round(value))),
        chart('Age of the oldest event that waits', history.lag, ['oldest'], age),
        overview.this_relay
          ? chart('Latency, of the last 10 s', history.latency, ['half within', '99% within'], ms,
            'From when an event occurred to its acknowledgement, as the relay of this page measures it.')
          : el('figure', { class: 'chart' }, el('figcaption', {}, 'Latency'),
            el('p', { class: 'empty' }, 'Only a relay knows it. Its own page shows it, on the address of --admin, where it is started with --admin-token-file.')))),
    routesTable(overview),
    relays(overview),
    webhooks(overview),
    overview.not_shown.length > 0 && el('section', {}, el('h3', {}, 'Not shown'),
      el('ul', {}, overview.not_shown.map((text) => el('li', { class: 'data' }, text)))),
  ];
}

export function noSource() {
  return [el('p', { class: 'empty' }, 'This database has no outbox table, or the role may not read it. What else it holds is in the other views.')];
}
