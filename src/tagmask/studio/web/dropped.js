// Photos that are dropped on the page: which of them are taken, and under which names.

/** @typedef {{file: File, path: string}} Dropped */

/**
 * All files of what was dropped, folders included.
 * @param {{entry: any, file: File | null}[]} dropped
 * @returns {Promise<Dropped[]>}
 */
export async function gather(dropped) {
  /** @type {Dropped[]} */
  const found = [];
  const waiting = dropped.map(({entry, file}) => ({entry, file, path: entry?.name || file?.name || ""}));
  while (waiting.length) {
    const {entry, file, path} = /** @type {{entry: any, file: File | null, path: string}} */ (waiting.shift());
    if (entry?.isDirectory) for (const inner of await children(entry)) waiting.push({entry: inner, file: null, path: `${path}/${inner.name}`});
    else if (file) found.push({file, path});
    else if (entry) found.push({file: await new Promise((resolve, reject) => { entry.file(resolve, reject); }), path});
  }
  return found;
}

/** What a folder holds; the browser hands it out in parts. @param {any} folder @returns {Promise<any[]>} */
async function children(folder) {
  const reader = folder.createReader(), all = [];
  for (;;) {
    const part = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
    if (!part.length) return all;
    all.push(...part);
  }
}

/**
 * Choose the photos of what was dropped: a single folder around all of them gives its name.
 * @param {Dropped[]} found
 * @param {string[]} suffixes of photos
 * @param {number} most bytes of a photo
 * @returns {{name: string, photos: Dropped[], left: number}}
 */
export function arranged(found, suffixes, most) {
  const photos = found.filter(({file, path}) => {
    const isPhoto = suffixes.some((suffix) => path.toLowerCase().endsWith(suffix)), isHidden = path.split("/").some((part) => part.startsWith("."));
    return isPhoto && !isHidden && file.size <= most;
  });
  const left = found.length - photos.length, tops = new Set(photos.map(({path}) => path.split("/")[0]));
  const [top] = tops, shared = tops.size === 1 && photos.every(({path}) => path.includes("/"));
  return {
    name: shared ? top : "photos", left,
    photos: shared ? photos.map(({file, path}) => ({file, path: path.slice(top.length + 1)})) : photos,
  };
}

/** @param {{photos?: number, counted?: boolean}} row */
export function counted({photos = 0, counted: all = true}) {
  if (!photos) return all ? "" : "not counted";
  return `${photos}${all ? "" : " or more"} photo${photos === 1 && all ? "" : "s"}`;
}

/** @param {number} bytes */
export const megabytes = (bytes) => (bytes < 1e9 ? `${Math.max(0.1, bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB` : `${(bytes / 1e9).toFixed(1)} GB`);
