// What is asked of the server. The token is kept in memory alone: it goes with the page.
const kLongestWait = 15_000; // ms

let token = '';
export const setToken = (text) => { token = text; };
export const hasToken = () => token !== '';

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status; // 0: the dashboard itself did not answer
    this.code = code;
  }
}

async function send(path, options) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = `Bearer ${token}`;
  let response;
  let body;
  try {
    response = await fetch(path, {
      ...options, headers, cache: 'no-store', credentials: 'omit', redirect: 'error',
      signal: AbortSignal.timeout(kLongestWait),
    });
    body = await response.json();
  } catch (error) {
    throw new ApiError(0, 'no_answer', error.name === 'TimeoutError'
      ? `no answer within ${kLongestWait / 1000} s` : 'the dashboard does not answer: was it stopped?');
  }
  if (!response.ok) throw new ApiError(response.status, body.error, body.message);
  return body;
}

export function get(path, values = {}) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== '' && value !== null));
  return send(`/api/${path}${query.size ? `?${query}` : ''}`, { method: 'GET' });
}

export const post = (path, body) => send(`/api/${path}`, {
  method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' },
});
