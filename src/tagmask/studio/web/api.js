// Talking to the server.

/** What this window is called; others are told who has changed something. */
export const PAGE = crypto.randomUUID();

/** A refusal by the server, as opposed to no answer at all. */
export class Refusal extends Error {
  /** @param {string} text @param {number} status */
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 */
export async function ask(path, options = {}) {
  const answer = await fetch(path, options);
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({error: answer.statusText}));
    throw new Refusal(problem.error, answer.status);
  }
  return answer;
}

/** @param {string} path @returns {Promise<any>} */
export const json = async (path) => (await ask(path)).json();

/** @param {string} path */
export const bytes = async (path) => (await ask(path)).arrayBuffer();

/**
 * @param {string} path
 * @param {any} [body] bytes, or something for JSON
 * @param {Record<string, string>} [headers]
 * @returns {Promise<any>}
 */
export async function post(path, body, headers = {}) {
  const sent = body === undefined ? "" : body instanceof Uint8Array ? body : JSON.stringify(body);
  const answer = await ask(path, {method: "POST", body: /** @type {any} */ (sent), headers: {"X-Page": PAGE, ...headers}});
  return answer.json();
}
