// Small helpers to build the page.

/**
 * @param {string} id
 * @returns {any}
 */
export const $ = (id) => document.getElementById(id);

/**
 * Make an element: fields that begin with "aria" or "data", and role, become attributes.
 * @param {string} kind
 * @param {Record<string, any>} [fields]
 * @param {...(Node | string)} inside
 * @returns {any}
 */
export function make(kind, fields = {}, ...inside) {
  const element = /** @type {any} */ (document.createElement(kind));
  for (const [name, value] of Object.entries(fields)) {
    if (/^(aria-|data-)/.test(name) || name === "role" || name === "for") element.setAttribute(name, String(value));
    else element[name] = value;
  }
  element.append(...inside);
  return element;
}

/**
 * Draw an icon from the path of its lines, in a square of 24.
 * @param {string} path
 */
export function icon(path) {
  const space = "http://www.w3.org/2000/svg", drawing = document.createElementNS(space, "svg"), lines = document.createElementNS(space, "path");
  drawing.setAttribute("viewBox", "0 0 24 24");
  drawing.setAttribute("aria-hidden", "true");
  lines.setAttribute("d", path);
  drawing.append(lines);
  return drawing;
}

/**
 * Show a sentence until it is dismissed; nothing hides it.
 * @param {unknown} problem
 * @param {boolean} [news] it is no problem
 */
export function say(problem, news = false) {
  const text = problem instanceof Error ? problem.message : String(problem || "");
  $("message").firstElementChild.textContent = text;
  $("message").classList.toggle("news", news);
  $("message").hidden = !text;
}

/**
 * Run something that may fail, and say so if it does.
 * @template {any[]} A
 * @param {(...values: A) => any} work
 * @returns {(...values: A) => Promise<any>}
 */
export const guarded = (work) => async (...values) => {
  try {
    return await work(...values);
  } catch (problem) {
    say(problem);
    return undefined;
  }
};

/** @param {string} text @param {any} control @returns {any} */
export const labelled = (text, control) => make("label", {}, `${text} `, control);

/**
 * @param {string} text
 * @param {(event: any) => any} onclick
 * @param {Record<string, any>} [fields]
 */
export const button = (text, onclick, fields = {}) => make("button", {textContent: text, onclick, type: "button", ...fields});

/**
 * @param {[string, string][]} choices value and text
 * @param {string} value
 * @param {(value: string) => any} onchange
 * @param {string} name
 */
export function chooser(choices, value, onchange, name) {
  const select = make("select", {"aria-label": name});
  select.append(...choices.map(([key, text]) => make("option", {value: key, textContent: text})));
  select.value = value;
  select.onchange = () => onchange(select.value);
  return select;
}
