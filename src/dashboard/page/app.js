// What is shown when: the views by the address behind #, the figures as they change, and what somebody
// does. Handlers are found by data-do and data-do-submit, so that a view can be made anew at any time.
import { el, state, morphChildren, count, plural, age, button } from './dom.js';
import { get, post, setToken, hasToken, ApiError } from './api.js';
import { History, quantile } from './chart.js';
import { flowView, noSource, troubles } from './flow.js';
import { lettersView, letterView, filterOf, filterText } from './letters.js';
import { heldView, sagasView, sagaView, consumersView, replaysView, auditView, explainView } from './views.js';

const kEveryMs = 2_000; // figures
const kViewEveryMs = 6_000; // views that ask for more
const kLatencyOver = 5; // readings

const $ = (id) => document.getElementById(id);
const now = {
  overview: null, at: 0, trouble: null, access: null,
  history: { rate: new History(), backlog: new History(), lag: new History(), latency: new History() },
  counts: [], // of latencies, of the last readings
  name: '', values: new URLSearchParams(), content: null, contentError: null,
  before: [], // where the pages of letters before this one began
  asked: 0, actor: '', total: 0,
};

const views = {
  flow: { title: 'Flow', show: () => (now.overview.has_source ? flowView(now.overview, now.history) : noSource()) },
  held: { title: 'Held up', badge: (o) => o.failing, live: true,
    load: async () => { const [held, tenants] = await Promise.all([get('held'), get('tenants')]); return { ...held, tenants }; },
    show: heldView },
  letters: {
    title: 'Dead letters', badge: (o) => o.dead,
    load: async () => { // the first page alone says how many there are
      const page = await get('letters', { ...filterOf(now.values), after: now.before.at(-1) ?? '' });
      now.total = page.total ?? now.total;
      return { ...page, total: now.total };
    },
    show: (page) => lettersView(page, filterOf(now.values), now.before, now.overview),
  },
  sagas: {
    title: 'Sagas', there: (o) => o.has_sagas, live: true,
    badge: (o) => o.sagas.filter((one) => one.state === 'stuck').reduce((sum, one) => sum + one.count, 0),
    load: () => get('sagas', { state: now.values.get('state') ?? '' }),
    show: (page) => sagasView(page, now.values.get('state') ?? '', now.overview),
  },
  consumers: {
    title: 'Consumers', there: (o) => o.has_consumers, live: true,
    load: () => get('consumers'), show: (asked) => consumersView(asked, now.overview),
  },
  replays: {
    title: 'Replays', there: (o) => o.has_source, live: true, load: () => get('replays'), show: replaysView,
  },
  audit: {
    title: 'Audit', load: async () => {
      const before = now.values.get('before') ?? '';
      return { ...(await get('audit', { before })), older: before !== '' };
    }, show: auditView,
  },
  explain: {
    title: 'Explain',
    load: () => {
      const asked = Object.fromEntries(now.values);
      return asked.id || asked.key ? get('explain', asked.key ? { key: asked.key, tenant: asked.tenant ?? '' } : { id: asked.id }) : Promise.resolve(null);
    },
    show: (answer) => explainView(Object.fromEntries(now.values), answer),
  },
};

// --- What is drawn

function drawNav() {
  const overview = now.overview;
  morphChildren($('nav'), Object.entries(views)
    .filter(([name, view]) => !view.there || (overview && view.there(overview)) || name === now.name)
    .map(([name, view]) => {
      const badge = overview && view.badge ? view.badge(overview) : 0;
      return el('a', { href: `#/${name}`, 'aria-current': name === now.name ? 'page' : null }, view.title,
        badge > 0 && [' ', el('span', { class: 'badge' }, count(badge))]);
    }));
}

function drawHead() {
  const { overview } = now;
  document.body.classList.toggle('old', now.trouble !== null);
  $('unlock').hidden = !now.access?.changes && !now.access?.reading_needs_token;
  $('unlock').textContent = hasToken() ? 'Lock' : 'Unlock changes';
  if (!overview) {
    morphChildren($('pulse'), [now.trouble ? state('bad', 'no figures') : 'reading …']);
    return;
  }
  morphChildren($('where'), [el('span', { class: 'data' }, overview.database)]);
  morphChildren($('pulse'), [now.trouble ? state('warn', 'old figures') : state('good', 'live')]);
  morphChildren($('footer'), [`outbox ${overview.version}`, overview.this_relay ? `; the page of relay ${overview.this_relay.owner}` : '',
    now.access?.changes ? '' : '; nothing can be changed here: it was started without --admin-token-file']);
  const found = overview.has_source ? troubles(overview) : [];
  document.title = found.length && !now.trouble ? `(${found.length}) Outbox` : 'Outbox';
}

function drawBanner() {
  const parts = [];
  if (now.trouble) {
    const { trouble } = now;
    parts.push(el('p', { class: 'banner bad' },
      el('strong', {}, trouble.status === 0 ? 'The dashboard does not answer. ' : 'The database cannot be asked. '),
      now.at ? `What is shown is old: of ${new Date(now.at).toISOString().slice(11, 19)}Z, ${age((Date.now() - now.at) / 1000)} ago. ` : '',
      'It is tried again by itself. ', el('span', { class: 'data' }, trouble.message)));
  }
  morphChildren($('banner'), parts);
}

function verdict() {
  const found = troubles(now.overview);
  if (found.length === 0) return el('p', { class: 'verdict good' }, state('good', 'All is well.'));
  return el('ul', { class: 'verdict' }, found.map((one) => el('li', { class: one.kind },
    state(one.kind, ''), el('a', { href: one.href, class: 'data' }, one.text))));
}

function drawMain() {
  const view = views[now.name];
  if (!now.overview) {
    if (now.access?.reading_needs_token && !hasToken()) {
      morphChildren($('main'), [el('h2', { tabindex: '-1' }, 'Locked'),
        el('p', {}, 'Others can reach this address, so that reading needs the token, too.'), button('Unlock', 'unlock', { class: 'primary' })]);
    } else if (now.trouble) {
      morphChildren($('main'), [el('h2', { tabindex: '-1' }, view.title), el('p', { class: 'empty' }, 'There are no figures yet.')]);
    }
    return;
  }
  let content;
  if (now.contentError) {
    content = [el('p', { class: 'error' }, state('bad', 'This cannot be shown. '), el('span', { class: 'data' }, now.contentError.message))];
  } else if (view.load && now.content === null && now.loading) {
    content = [el('p', { class: 'empty' }, 'reading …')];
  } else {
    content = view.show(now.content);
  }
  const fresh = [el('h2', { tabindex: '-1', id: 'title' }, view.title),
    now.name === 'flow' && now.overview.has_source && verdict(), ...content.flat(Infinity)];
  morphChildren($('main'), fresh.filter((node) => node instanceof Node));
}

function draw() {
  drawNav();
  drawHead();
  drawBanner();
  drawMain();
}

// --- What is read

function takeFigures(overview) {
  const { history } = now;
  const routes = overview.routes.filter((route) => !route.retired);
  history.rate.add(Object.fromEntries(routes.map((route) => [route.name, route.rate_per_s])));
  history.backlog.add({ backlog: overview.backlog, failing: overview.failing });
  history.lag.add({ oldest: overview.backlog > 0 ? overview.oldest_age_s : 0 });
  if (!overview.this_relay) return;
  const bounds = overview.this_relay.latency_bounds_ms;
  const all = overview.this_relay.routes.reduce(
    (sum, route) => sum.map((value, i) => value + route.latency_counts[i]), new Array(bounds.length + 1).fill(0));
  now.counts.push(all);
  if (now.counts.length > kLatencyOver + 1) now.counts.shift();
  const lately = all.map((value, i) => value - now.counts[0][i]);
  history.latency.add({ 'half within': quantile(bounds, lately, 0.5), '99% within': quantile(bounds, lately, 0.99) });
}

async function readFigures() {
  try {
    if (now.access === null) now.access = await get('access');
    if (now.access.reading_needs_token && !hasToken()) return;
    const overview = await get('overview');
    now.overview = overview;
    now.at = Date.now();
    now.trouble = null;
    takeFigures(overview);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    now.trouble = error;
    if (error.status === 401) setToken('');
  }
}

async function readView() {
  const view = views[now.name];
  if (!view.load || (now.access?.reading_needs_token && !hasToken())) return;
  const asked = ++now.asked;
  now.loading = true;
  let content = null;
  let failed = null;
  try {
    content = await view.load();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    failed = error;
  }
  if (asked !== now.asked) return; // another was asked for meanwhile
  now.loading = false;
  // Old figures are better than none; the banner says that they are old.
  if (failed && now.content !== null && now.trouble) return;
  now.content = content;
  now.contentError = failed;
}

async function loop() {
  if (!document.hidden) {
    await readFigures();
    const view = views[now.name];
    if (view.live && Date.now() - now.viewAt > kViewEveryMs) {
      now.viewAt = Date.now();
      await readView();
    }
    draw();
  }
  setTimeout(loop, Math.max(kEveryMs, 5 * (now.overview?.read_ms ?? 0)));
}

async function go() {
  const [name, query] = location.hash.replace(/^#\/?/, '').split('?');
  const other = now.name !== name;
  now.name = views[name] ? name : 'flow';
  now.values = new URLSearchParams(query ?? '');
  now.content = null;
  now.contentError = null;
  now.before = [];
  now.viewAt = Date.now();
  $('dialog').close();
  $('main').replaceChildren(); // what was typed belongs to what was shown
  const reading = readView();
  draw();
  await reading;
  draw();
  if (other && document.body.dataset.ready) document.querySelector('#main h2')?.focus({ preventScroll: true });
  if (other) window.scrollTo(0, 0);
  document.body.dataset.ready = 'yes';
}

async function again() {
  await readFigures();
  await readView();
  draw();
}

// --- What is done

function say(text) {
  $('said').textContent = text;
  setTimeout(() => { if ($('said').textContent === text) $('said').textContent = ''; }, 12_000);
}

function open(...content) {
  const dialog = $('dialog');
  dialog.replaceChildren(...content.flat(Infinity).filter((node) => node instanceof Node));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

const problem = (text) => el('p', { class: 'error', role: 'alert' }, state('bad', text));

function openUnlock(text) {
  open(el('h2', { id: 'dialog-title' }, 'Unlock'), text && problem(text),
    el('form', { class: 'ask', 'data-do-submit': 'unlock' },
      el('label', {}, 'Token', el('input', { name: 'token', type: 'password', required: true, autocomplete: 'off' })),
      el('p', { class: 'faint' }, 'It is the content of the admin token file. This page keeps it in memory alone.'),
      el('div', { class: 'buttons end' }, button('Cancel', 'close'), el('button', { class: 'primary' }, 'Unlock'))));
}

// One letter by its id, or all that the filter takes, counted first.
async function openChange(data, text) {
  const one = Boolean(data.id);
  const filter = one ? { id: data.id, route: data.route } : filterOf(now.values);
  const verb = data.action === 'retry' ? 'Retry' : 'Discard';
  let counted;
  try {
    counted = await get('letters/count', filter);
  } catch (error) {
    open(el('h2', { id: 'dialog-title' }, verb), problem(error.message), el('div', { class: 'buttons end' }, button('Close', 'close')));
    return;
  }
  const { matched } = counted;
  const gone = data.action === 'retry' && counted.routes_that_are_gone.length > 0;
  const left = data.action === 'discard' ? counted.retrying : 0;
  const taken = matched - left;
  const what = plural(taken, 'dead letter', 'dead letters');
  const head = [el('h2', { id: 'dialog-title' }, `${verb} ${what}`), text && problem(text)];
  const why = !now.access.changes ? 'Nothing can be changed here: it was started without --admin-token-file.'
    : gone ? `Nobody would retry them: their relay has no route ${counted.routes_that_are_gone.join(', ')} any more. outbox dead retry --to ROUTE gives them another.`
      : matched === 0 ? 'None matches any more.'
        : taken === 0 ? 'They are being retried, and may be on the way: wait until they are delivered or dead again.' : null;
  if (why) {
    open(head, problem(why), el('div', { class: 'buttons end' }, button('Close', 'close')));
    return;
  }
  open(head,
    el('p', {}, data.action === 'retry'
      ? `Would ask the relay to send ${what} again. A retried event comes after later ones of its key.`
      : `Would delete ${what} for good: what is deleted is never delivered.`),
    left > 0 && problem(`${plural(left, 'dead letter is', 'dead letters are')} being retried, and left alone.`),
    el('p', { class: 'data' }, one ? `Event ${data.id}, route ${data.route}` : `Which: ${filterText(filter)}`),
    el('form', { class: 'ask', 'data-do-submit': 'change', 'data-action': data.action, 'data-matched': matched, 'data-retrying': counted.retrying, 'data-up-to': counted.up_to,
      'data-filter': JSON.stringify(filter), 'data-id': data.id ?? null, 'data-route': data.route ?? null },
    !hasToken() && el('label', {}, 'Token', el('input', { name: 'token', type: 'password', required: true, autocomplete: 'off' })),
    el('label', {}, 'Your name', el('input', { name: 'actor', required: true, maxlength: '64', value: now.actor, autocomplete: 'username' })),
    el('label', {}, 'Reason, for the audit', el('input', { name: 'reason', required: true, minlength: '3', maxlength: '500', autocomplete: 'off' })),
    taken > 1 && el('label', {}, `Type ${taken} to say that you mean all of them`,
      el('input', { name: 'typed', required: true, inputmode: 'numeric', autocomplete: 'off', pattern: `${taken}`, title: `${taken}` })),
    el('div', { class: 'buttons end' }, button('Cancel', 'close'),
      el('button', { class: data.action === 'retry' ? 'primary' : 'danger' }, `${verb} ${what}`))));
}

async function unlock(token) {
  setToken(token);
  try {
    await get('token');
    return null;
  } catch (error) {
    setToken('');
    return error.message;
  }
}

const submits = {
  filter: (form) => {
    const values = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ''));
    location.hash = `/letters${values.size ? `?${values}` : ''}`;
  },
  sagas: (form) => { location.hash = `/sagas?state=${encodeURIComponent(new FormData(form).get('state'))}`; },
  explain: (form) => {
    const values = new FormData(form);
    const [kind, tenant] = [values.get('kind'), values.get('tenant').trim()];
    location.hash = `/explain?${kind}=${encodeURIComponent(values.get('value').trim())}`
      + (kind === 'key' && tenant ? `&tenant=${encodeURIComponent(tenant)}` : '');
  },
  unlock: async (form) => {
    const refused = await unlock(new FormData(form).get('token'));
    if (refused) { openUnlock(refused); return; }
    $('dialog').close();
    say('Unlocked. The token is gone when this page is.');
    await again();
  },
  change: async (form) => {
    const values = new FormData(form);
    const { action, matched, retrying, upTo, id, route } = form.dataset;
    now.actor = values.get('actor').trim();
    if (values.has('token')) {
      const refused = await unlock(values.get('token'));
      if (refused) { await openChange({ action, id, route }, refused); return; }
    }
    const filter = JSON.parse(form.dataset.filter);
    const chosen = { ...filter };
    if (filter.id) { chosen.ids = [filter.id]; delete chosen.id; }
    if (Object.keys(chosen).length === 0) chosen.all = true;
    try {
      const done = await post(`letters/${action}`, {
        ...chosen, actor: now.actor, reason: values.get('reason').trim(), expected: Number(matched), retrying: Number(retrying), up_to: Number(upTo) });
      $('dialog').close();
      const left = Number(matched) - done.matched;
      say(action === 'retry' ? `Asked the relay to retry ${plural(done.matched, 'dead letter', 'dead letters')}.`
        : `Discarded ${plural(done.matched, 'dead letter', 'dead letters')}.${left > 0 ? ` ${plural(left, 'is', 'are')} being retried, and left alone.` : ''}`);
      now.before = id ? now.before : [];
      await again();
    } catch (error) {
      if (error.status === 401) setToken('');
      await openChange({ action, id, route }, error.message);
    }
  },
};

const actions = {
  close: () => $('dialog').close(),
  unlock: () => openUnlock(),
  change: (data) => openChange(data),
  letter: async (data) => {
    try {
      open(letterView(await get('letter', { id: data.id, dead_id: data.deadId })));
    } catch (error) {
      open(el('h2', { id: 'dialog-title' }, 'Dead letter'), problem(error.message), el('div', { class: 'buttons end' }, button('Close', 'close')));
    }
  },
  saga: async (data) => {
    try {
      open(sagaView(await get('saga', { id: data.id })));
    } catch (error) {
      open(el('h2', { id: 'dialog-title' }, 'Saga'), problem(error.message), el('div', { class: 'buttons end' }, button('Close', 'close')));
    }
  },
  page: async (data) => {
    if (data.to === 'first') now.before = [];
    else if (data.to === 'previous') now.before = now.before.slice(0, -1);
    else now.before = [...now.before, now.content.next];
    await readView();
    draw();
    document.querySelector('#main .scroll')?.scrollIntoView({ block: 'nearest' });
  },
  audit: (data) => { location.hash = data.before ? `/audit?before=${data.before}` : '/audit'; },
};

document.addEventListener('click', (event) => {
  const from = event.target.closest('[data-do]');
  if (from) actions[from.dataset.do](from.dataset);
});
document.addEventListener('submit', (event) => {
  event.preventDefault();
  submits[event.target.dataset.doSubmit](event.target);
});
$('unlock').addEventListener('click', () => {
  if (!hasToken()) { openUnlock(); return; }
  setToken('');
  if (now.access.reading_needs_token) now.overview = null;
  draw();
});
window.addEventListener('hashchange', go);
document.addEventListener('visibilitychange', () => { if (!document.hidden) again(); });

await readFigures();
await go();
loop();
