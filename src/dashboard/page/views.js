// The smaller views: what is held up, sagas, consumers, the audit, and the life of one event.
import { el, state, table, facts, count, plural, age, when, button } from './dom.js';

const explainLink = (name, value, tenant) => el('a', {
  href: `#/explain?${name}=${encodeURIComponent(value)}${tenant ? `&tenant=${encodeURIComponent(tenant)}` : ''}`, class: 'data' }, value);
const section = (title, intro, ...content) => el('section', {}, el('h3', {}, title), intro && el('p', { class: 'faint' }, intro), content);

function tenantsOf({ tenants, paused, more }) {
  if (tenants.length === 0) return null;
  const shown = tenants.filter((one) => one.paused).length;
  return section('Tenants that are paused, and those of whom most waits',
    'Of each what its slowest route has left. outbox tenant pause and resume change them.',
    table('Tenants', [
      { name: 'Tenant', kind: 'data', cell: (one) => one.tenant },
      { name: 'State', cell: (one) => (one.paused ? state('warn', 'paused') : state('off', 'not paused')) },
      { name: 'Waiting', right: true, cell: (one) => count(one.waiting) },
      { name: 'Since', cell: (one) => (one.paused ? when(one.since) : '–') },
      { name: 'Who, and why', kind: 'words data', cell: (one) => (one.paused ? [el('strong', {}, one.who), ' ', one.reason] : '–') },
    ], tenants, ''),
    more && el('p', {}, 'Up to 20,000 events of a route were counted, and there are more.'),
    paused > shown && el('p', {}, `${count(paused)} tenants are paused; outbox tenant list shows them all.`));
}

export function heldView(held) {
  return [
    tenantsOf(held.tenants),
    section('Events that failed, and wait for another attempt',
      'Each holds back the later events of its key in its route, and nothing else. Follow a key to see what is behind it.',
      table('Events that failed', [
        { name: 'Key', kind: 'data', cell: (one) => (one.key ? explainLink('key', one.key) : '–') },
        { name: 'Route', kind: 'data', cell: (one) => one.route },
        { name: 'Event', kind: 'data', cell: (one) => explainLink('id', one.id) },
        { name: 'Attempts', right: true, cell: (one) => (one.attempts > 0 ? count(one.attempts) : 'none counted') },
        { name: 'First failed', cell: (one) => when(one.first_failed_at) },
        { name: 'Next attempt', cell: (one) => when(one.next_attempt_at) },
        { name: 'Blocked by', kind: 'words data', cell: (one) => [el('strong', {}, one.error_code), ' ', one.error] },
      ], held.events, 'None: no key is held up by a failure.'),
      held.events_are_more && el('p', {}, `The first ${held.events.length} are shown.`)),
    section('Keys behind a dead letter',
      'Of routes with on_dead_letter = "block_key", where the configuration says so. To retry or discard the letter sets the key free.',
      table('Keys behind a dead letter', [
        { name: 'Key', kind: 'data', cell: (one) => explainLink('key', one.key ?? one.aggregate_id ?? '') },
        { name: 'Route', kind: 'data', cell: (one) => one.route },
        { name: 'Event', kind: 'data', cell: (one) => explainLink('id', one.id) },
        { name: 'Died', cell: (one) => when(one.died_at) },
        { name: 'Blocked by', kind: 'words data', cell: (one) => [el('strong', {}, one.error_code), ' ', one.error] },
      ], held.dead, 'None.')),
    section('Transactions that write events and are still open',
      held.tells_writers ? 'What comes behind them in the table may have to wait for them.' : null,
      held.tells_writers
        ? table('Open transactions', [
          { name: 'Process', right: true, cell: (one) => (one.pid > 0 ? String(one.pid) : '–') },
          { name: 'Open since', cell: (one) => when(one.began_at) },
          { name: 'Who', kind: 'words data', cell: (one) => one.text },
        ], held.writers, 'None.')
        : el('p', { class: 'empty' }, 'This database does not tell whose they are.')),
  ];
}

const sagaKinds = { running: 'good', completed: 'good', compensating: 'warn', compensated: 'off', stuck: 'bad' };
const stepKinds = { done: 'good', sent: 'warn', undoing: 'warn', undone: 'off', refused: 'bad' };

export function sagasView(page, chosen, overview) {
  const states = ['', 'stuck', 'compensating', 'running', 'completed', 'compensated'];
  return [
    section('How many', null, table('Sagas by state', [
      { name: 'Saga', kind: 'data', cell: (one) => one.name },
      { name: 'State', cell: (one) => state(sagaKinds[one.state] ?? 'off', one.state) },
      { name: 'Count', right: true, cell: (one) => count(one.count) },
      { name: 'Idle longest', cell: (one) => (['completed', 'compensated'].includes(one.state) ? '–' : age(one.idle_s)) },
    ], overview.sagas, 'No saga has begun.')),
    el('form', { class: 'filter', 'data-do-submit': 'sagas' },
      el('label', {}, 'State', el('select', { name: 'state' }, states.map((name) =>
        el('option', { value: name, selected: name === chosen }, name || 'every')))),
      el('div', { class: 'buttons' }, el('button', { class: 'primary' }, 'Show'))),
    el('p', {}, `${plural(page.total, 'saga', 'sagas')}, the oldest first`,
      page.total > page.sagas.length && `; the first ${count(page.sagas.length)} are shown`),
    table('Sagas', [
      { name: 'Id', kind: 'data', cell: (one) => button(one.id, 'saga', { 'data-id': one.id, class: 'link' }, { 'aria-label': `Show ${one.id}` }) },
      { name: 'Saga', kind: 'data', cell: (one) => `${one.name} ${one.version}` },
      { name: 'State', cell: (one) => state(sagaKinds[one.state] ?? 'off', one.state) },
      { name: 'Step', kind: 'data', cell: (one) => one.step ?? '–' },
      { name: 'Idle', cell: (one) => (one.finished_at ? '–' : age(one.idle_s)) },
      { name: 'Why', kind: 'words data', cell: (one) => one.trouble ?? one.dead_error ?? one.cause ?? '–' },
    ], page.sagas, 'None in this state.'),
  ];
}

export function sagaView(saga) {
  return [
    el('h2', { id: 'dialog-title' }, `Saga ${saga.name}`),
    saga.trouble && el('p', { class: 'error data' }, saga.trouble),
    facts([
      ['Id', el('span', { class: 'data' }, saga.id)], ['Version', saga.version], ['State', state(sagaKinds[saga.state] ?? 'off', saga.state)],
      ['Cause', saga.cause], ['Dead letters', saga.dead_letters > 0 ? `${count(saga.dead_letters)}, the last: ${saga.dead_error ?? ''}` : null],
      ['Asked for', saga.requested], ['Started', when(saga.started_at)], ['Progress', when(saga.updated_at)],
      ['Finished', saga.finished_at && when(saga.finished_at)], ['Timer due', saga.due_at && when(saga.due_at)], ['Topic', saga.topic],
    ]),
    el('h3', {}, 'Steps'),
    table('Steps', [
      { name: 'Step', kind: 'data', cell: (step) => step.step },
      { name: 'State', cell: (step) => state(stepKinds[step.state] ?? 'off', step.state) },
      { name: 'Tries', right: true, cell: (step) => count(step.attempts) },
      { name: 'Late answers', right: true, cell: (step) => count(step.late) },
      { name: 'Can be undone', cell: (step) => (step.can_undo ? 'yes' : 'no') },
    ], saga.steps, 'None yet.'),
    saga.data && [el('h3', {}, 'Data'), el('pre', { tabindex: '0', 'aria-label': 'Data' }, saga.data)],
    el('p', { class: 'faint' }, 'To have it go on or turn back: outbox saga resume or outbox saga abort.'),
    el('div', { class: 'buttons end' }, button('Close', 'close')),
  ];
}

function consumersOf(one) {
  return [
    table('Consumers', [
      { name: 'Consumer', kind: 'data', cell: (row) => el('strong', {}, row.name) },
      { name: 'Applied', right: true, cell: (row) => count(row.applied_total) },
      { name: 'Repeats dropped', right: true, cell: (row) => count(row.repeats_total) },
      { name: 'Failed', right: true, cell: (row) => count(row.failed_total) },
      { name: 'Dead', right: true, cell: (row) => (row.dead > 0 ? state('bad', count(row.dead)) : '0') },
      { name: 'Behind', right: true, cell: (row) => (row.lag === null ? '?' : count(row.lag)) },
      { name: 'Remembers ids since', cell: (row) => (row.floor ? when(row.floor) : 'the first') },
      { name: 'Reported', cell: (row) => when(row.updated_at) },
    ], one.consumers, 'No consumer has reported here.'),
    table('Mailboxes', [
      { name: 'Mailbox', kind: 'data', cell: (row) => el('strong', {}, row.name) },
      { name: 'Waiting', right: true, cell: (row) => count(row.waiting) },
      { name: 'Oldest', cell: (row) => age(row.oldest_age_s) },
    ], one.mailboxes, 'No message waits in a mailbox.'),
    one.consumers.some((row) => row.dead > 0) && el('p', { class: 'faint' },
      'Their dead letters: outbox dead list --consumer NAME --db URL'),
  ];
}

export function consumersView(asked, overview) {
  const own = overview.consumers.length + overview.mailboxes.length > 0;
  return [
    own && section('In this database', null, consumersOf(overview)),
    asked.databases.map((one) => section(one.database, null, one.error
      ? el('p', { class: 'error' }, state('bad', 'cannot be read'), ' ', el('span', { class: 'data' }, one.error))
      : consumersOf(one))),
    !own && asked.databases.length === 0 && el('p', { class: 'empty' },
      'No consumer here. Those of other databases are shown where they are named: outbox dashboard --consumer-db URL.'),
  ];
}

// A run that nobody has written of for the time of its lease was stopped, or killed.
function replayState(run) {
  if (run.state === 'running') return run.runner ? state('good', 'running') : state('warn', 'stopped');
  if (run.state === 'failed') return state('bad', 'failed');
  return state('off', run.state === 'finished' ? 'done' : run.state);
}

function replaySent(run) {
  const of = Math.max(run.expected, run.sent + run.refused, 1);
  return [el('div', { class: 'nowrap' }, `${count(run.sent)} of ${count(run.expected)}`),
    el('progress', { max: of, value: run.sent + run.refused, 'aria-label': `Done of ${run.run}` }),
    run.refused > 0 && el('div', {}, state('bad', `${count(run.refused)} refused`))];
}

function replayPace(run) {
  const asked = el('div', { class: 'faint nowrap' }, `asked for ${count(run.rate)}/s`);
  if (run.state !== 'running' || !run.runner) return asked;
  const left = run.expected - run.sent - run.refused;
  return [el('div', { class: 'nowrap' }, el('strong', {}, `${count(Math.round(run.rate_per_s))}/s`)), asked,
    run.rate_per_s >= 1 && left > 0 && el('div', { class: 'faint nowrap' }, `about ${age(left / run.rate_per_s)} left`)];
}

function replayTrouble(run) {
  const [first] = run.refusals;
  return [run.error && el('div', { class: 'data' }, run.error),
    first && el('div', { class: 'data' }, 'refused ', explainLink('id', first.id), ': ', first.error, run.refused > 1 && ', and others')];
}

export function replaysView(page) {
  return [
    el('p', { class: 'faint' }, 'Runs of outbox replay, which sends events of the past again: those that are not over first, then the newest. ',
      'outbox replay resume and outbox replay cancel change them.'),
    table('Replays', [
      { name: 'State', cell: replayState },
      { name: 'Sent', cell: replaySent },
      { name: 'Pace', cell: replayPace },
      { name: 'What', kind: 'words', cell: (run) => [
        el('div', { class: 'data' }, el('strong', {}, run.route), run.to && ` to ${run.to}`),
        el('div', { class: 'data' }, run.scope, run.as_new && ', as new events'),
        el('div', { class: 'data faint' }, run.run), replayTrouble(run)] },
      { name: 'Who, and why', kind: 'words', cell: (run) => [
        el('div', { class: 'data' }, run.who), el('div', { class: 'data' }, run.reason), run.runner && el('div', { class: 'data faint' }, `by ${run.runner}`),
        el('div', {}, 'began ', when(run.started_at)), run.ended_at && el('div', {}, 'ended ', when(run.ended_at))] },
    ], page.replays, 'No replay was run.'),
  ];
}

export function auditView(page) {
  return [
    el('p', { class: 'faint' }, 'What operators did to this table and to the webhooks, sagas and consumers of its database, by this page or by a command, the last first.'),
    table('Audit', [
      { name: 'When', cell: (line) => when(line.at) },
      { name: 'Who', kind: 'data', cell: (line) => line.who },
      { name: 'Did', cell: (line) => el('strong', { class: 'nowrap' }, line.action) },
      { name: 'Of', kind: 'data', cell: (line) => line.of },
      { name: 'To', right: true, cell: (line) => (line.events ? plural(line.events, 'event', 'events') : '') },
      { name: 'Which, and why', kind: 'words data', cell: (line) => line.detail },
    ], page.lines, 'Nothing yet.'),
    (page.next !== null || page.older) && el('div', { class: 'pager' },
      button('Newest', 'audit', { 'data-before': '' }, { disabled: !page.older }),
      button('Older', 'audit', { 'data-before': page.next ?? '' }, { disabled: page.next === null })),
  ];
}

function explained(event) {
  const kind = { dead: 'bad', sent: 'good', applied: 'good' }[event.state] ?? 'warn';
  return el('article', { class: 'event' },
    el('h3', {}, 'Event ', el('span', { class: 'data' }, event.id), ' ', state(kind, event.state)),
    facts([['Key', event.key && explainLink('key', event.key, event.tenant_id)], ['Position', event.position && count(event.position)],
      ['Type', event.event_type], ['Aggregate type', event.aggregate_type], ['Topic', event.topic],
      ['Tenant', event.tenant_id === 'default' ? null : event.tenant_id], ['Led by', event.relay]]),
    event.waits.length > 0 && [el('h4', {}, 'Why it waits'), el('ul', {}, event.waits.map((wait) =>
      el('li', { class: 'data' }, wait.route && el('strong', {}, `route ${wait.route}: `), wait.text)))],
    event.timeline.length > 0 && [el('h4', {}, 'What happened'), el('ol', { class: 'timeline' }, event.timeline.map((moment) =>
      el('li', {}, el('span', { class: 'faint' }, moment.at ? when(moment.at) : 'no time is kept'),
        el('span', { class: 'data' }, moment.where && el('strong', {}, `${moment.where}: `), moment.text))))],
    event.remarks.length > 0 && el('ul', { class: 'remarks' }, event.remarks.map((text) => el('li', {}, text))));
}

export function explainView(asked, answer) {
  const kinds = { id: 'Event id', key: 'Key' };
  const kind = asked.key ? 'key' : 'id';
  return [
    el('form', { class: 'filter', 'data-do-submit': 'explain' },
      el('label', {}, 'Ask for', el('select', { name: 'kind' }, Object.entries(kinds).map(([value, name]) =>
        el('option', { value, selected: value === kind }, name)))),
      el('label', { class: 'wide' }, 'Id or key', el('input', { name: 'value', value: asked[kind] ?? '', autocomplete: 'off', spellcheck: 'false' })),
      el('label', {}, 'Tenant, of a key', el('input', { name: 'tenant', value: asked.tenant ?? '', placeholder: 'all', autocomplete: 'off', spellcheck: 'false' })),
      el('div', { class: 'buttons' }, el('button', { class: 'primary' }, 'Explain'))),
    !answer && el('p', { class: 'empty' }, 'The life of one event, and why it waits; or what of a key is not finished.'),
    answer && answer.waiting && section(`Key ${answer.key}${asked.tenant ? ` of ${asked.tenant}` : ''}`,
      answer.waiting.length + answer.dead.length + answer.delayed.length + answer.webhooks.length === 0
        ? 'No event of it is unfinished, delayed or dead.' : null,
      table('Events of the key', [
        { name: 'Event', kind: 'data', cell: (one) => explainLink('id', one.id) },
        { name: 'State', cell: (one) => one.shown },
        ...(asked.tenant ? [] : [{ name: 'Tenant', kind: 'data', cell: (one) => one.tenant_id ?? '–' }]),
        { name: 'Type', kind: 'data', cell: (one) => one.event_type ?? '–' },
      ], [
        ...answer.dead.map((one) => ({ ...one, shown: state('bad', `dead in ${one.route}: ${one.error_code}`) })),
        ...answer.waiting.map((one) => {
          const attempts = Math.max(0, ...one.routes.map((route) => route.attempts));
          return { ...one, shown: state('warn', attempts > 0 ? `failed, ${plural(attempts, 'attempt', 'attempts')}` : 'waiting') };
        }),
        ...answer.webhooks.map((one) => ({ ...one, tenant_id: null,
          shown: state(one.dead ? 'bad' : 'warn', `${one.dead ? 'dead' : one.attempts > 0 ? `failed, ${plural(one.attempts, 'attempt', 'attempts')}` : 'waiting'} at endpoint ${one.endpoint}`) })),
        ...answer.delayed.map((one) => ({ ...one, shown: state('off', 'delayed') })),
      ], 'None.'),
      (answer.waiting_is_more || answer.webhooks_are_more) && el('p', {}, 'More wait than are shown.'),
      answer.events.length > 0 && el('h3', {}, 'The first that waits')),
    answer && answer.events.map(explained),
  ];
}
