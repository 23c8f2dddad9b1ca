// The shapes of what the page holds. Nothing here runs.

/**
 * A box of pixels.
 * @typedef {{top: number, left: number, height: number, width: number}} Box
 */

/**
 * One photo, complete: it is made when everything has arrived, and never changed into another.
 * Strokes change `correction` in place; saving uses the id and digest of this very object.
 * @typedef {object} Truth
 * @property {number} id
 * @property {string} name
 * @property {number} height
 * @property {number} width
 * @property {HTMLImageElement} image
 * @property {Uint8Array} mask labels by the run; empty if there are none
 * @property {Uint8Array} correction labels by a person, 255 where there are none
 * @property {string[][]} methods
 * @property {string} refusal
 * @property {boolean} hasHead
 */

/**
 * What the server tells.
 * @typedef {object} Server
 * @property {string} title
 * @property {"folder" | "run" | "photo"} mode
 * @property {string} out
 * @property {string[]} runs
 * @property {string[]} classes
 * @property {number[][]} colours
 * @property {string[]} photos
 * @property {string[][]} tags
 * @property {string[]} tagDigests
 * @property {Record<string, string>} folderTags tag by the folder that photos lie in
 * @property {Record<string, string>} notes
 * @property {number[]} inRun
 * @property {boolean} editable
 * @property {any} learning
 * @property {any} job
 * @property {number[]} order
 * @property {any[]} suggestions
 * @property {any} comparing
 * @property {{title: string, cards: [string, string, string][]}[]} cards
 * @property {number[]} masks
 * @property {number[]} pseudo
 * @property {number[]} corrected
 * @property {number[]} checked
 * @property {number[]} drawn
 * @property {any[]} facts
 * @property {Record<string, boolean>} made
 * @property {string} foreign
 * @property {boolean} truth
 * @property {any[]} versions
 * @property {boolean} report
 * @property {string[]} verdicts
 * @property {boolean} outdated
 */

/**
 * Where the page is: a step, perhaps a photo, and which photos are listed.
 * @typedef {{step: string, photo: number, q: string, tag: string, show: string, order: string}} Route
 */

/**
 * Everything the page knows.
 * @typedef {object} State
 * @property {Server} server
 * @property {Route} route
 * @property {Truth | null} open
 * @property {number} opening the photo that is loading, -1 if none
 * @property {string} tool
 * @property {number} label what is painted
 * @property {number} size of the brush, pixels of the screen
 * @property {string} pieces size of superpixels
 * @property {number} opacity
 * @property {boolean} hidden the mask, while a key is held
 * @property {boolean} doubt
 * @property {number} split of the before/after slider, 0 to 1; 0 shows the mask alone
 * @property {number[]} selection
 * @property {number[] | null} only photos that a suggestion names
 * @property {{waiting: number, offline: boolean}} outbox
 * @property {{undo: number, redo: number}} history
 * @property {number} stamp grows when masks on thumbnails may have changed
 * @property {number} strokes grows when the server has a stroke
 * @property {boolean} preview show after every stroke what it would lead to
 */

export {};
