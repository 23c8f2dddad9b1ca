"""Style sheet and script of the report: text that goes into the page as it is."""

STYLE = """
:root {
  --paper: #f6f7f9; --card: #ffffff; --ink: #1c2128; --muted: #5b6470; --line: #dde1e7; --accent: #0067a5;
  --soft: #e4eef6; --warn: #fff4d6; --warn-line: #e0b64a; --good: #0072b2; --bad: #d55e00; --strong: #ffffff;
  --c0: #0072b2; --c1: #d55e00; --c2: #007a5a; --c3: #a0457d; --c4: #b07700; --c5: #3d8fc4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --card: #1d2126; --ink: #e6e9ed; --muted: #a0a9b4; --line: #343a42; --accent: #6cb8ea;
    --soft: #22384a; --warn: #3a3117; --warn-line: #8d7428; --good: #3f9fdc; --bad: #f08a3c; --strong: #0d1013;
    --c0: #56b4e9; --c1: #f28e3d; --c2: #3fc39b; --c3: #d98abb; --c4: #e6b93c; --c5: #9fc9e8;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0 0 8px; }
h3 { font-size: 1rem; margin: 20px 0 6px; }
p { margin: 6px 0 12px; max-width: 76ch; }
a { color: var(--accent); }
code { font: 0.9em ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.muted, figcaption, .under { color: var(--muted); }
.under { margin-bottom: 16px; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin-bottom: 16px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
  margin: 0 0 18px; }
.note { background: var(--warn); border-left: 4px solid var(--warn-line); padding: 8px 12px; border-radius: 4px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0 0 18px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.tile b { display: block; font-size: 1.7rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tile span { display: block; }
.tile small { color: var(--muted); display: block; line-height: 1.35; }
.wide { overflow-x: auto; margin: 0 0 12px; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
table.full { width: 100%; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; white-space: nowrap; vertical-align: bottom; }
th button { all: unset; cursor: pointer; }
th button::after { content: " ↕"; color: var(--muted); font-weight: 400; }
th[aria-sort="ascending"] button::after { content: " ↑"; color: var(--accent); }
th[aria-sort="descending"] button::after { content: " ↓"; color: var(--accent); }
th button:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table.classes th { white-space: normal; min-width: 11ch; }
td.number { white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 14ch; }
td.value { overflow-wrap: anywhere; }
table.pairs thead { display: none; }
tr:last-child td { border-bottom: 0; }
.bar { display: block; min-width: 84px; padding: 0 6px; border-radius: 3px;
  background: linear-gradient(to right, var(--soft) var(--part), transparent var(--part)); }
.badge { display: inline-block; font-size: 0.82rem; line-height: 1.4; padding: 0 8px; border-radius: 9px;
  white-space: nowrap; border: 1px solid var(--line); background: var(--soft); }
.badge.oracle { background: var(--warn); border-color: var(--warn-line); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(380px, 100%), 1fr)); gap: 16px; }
figure { margin: 0; max-width: 500px; }
figcaption { font-size: 0.88rem; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--muted); }
svg text.strong { fill: var(--strong); }
svg text.dark { fill: var(--ink); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 0.85rem; margin: 2px 0 0; }
.legend span { display: inline-flex; align-items: center; gap: 6px; }
.legend svg { width: 26px; height: 12px; flex: none; }
.swatch { width: 14px; height: 14px; border: 1px solid var(--muted); border-radius: 3px; flex: none; }
.hatched { background: repeating-linear-gradient(135deg, #d7d7d7 0 3px, #696969 3px 6px); }
.case { border-top: 1px solid var(--line); padding: 10px 0 14px; }
.case header { display: flex; flex-wrap: wrap; gap: 2px 12px; align-items: baseline; margin-bottom: 6px; }
.case header b { overflow-wrap: anywhere; }
.strip { display: grid; grid-template-columns: repeat(var(--columns), minmax(0, 1fr)); gap: 8px;
  max-width: calc(var(--columns) * 250px); }
.strip figure { max-width: none; }
.strip img { display: block; width: 100%; height: auto; border-radius: 4px; background: var(--line); }
.strip figcaption { font-size: 0.8rem; line-height: 1.3; margin-top: 3px; }
details { margin: 8px 0; }
summary { cursor: pointer; font-weight: 600; padding: 2px 0; }
details > div, details > p { margin-top: 6px; }
@media (max-width: 640px) {
  main { padding: 16px 10px 40px; }
  section { padding: 14px 12px; border-radius: 8px; }
  h1 { font-size: 1.4rem; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px; }
  .tile b { font-size: 1.4rem; }
  .strip { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 6px; }
  th, td { padding-right: 10px; }
}
@media print { section, .tile { break-inside: avoid; border-color: #bbb; } nav { display: none; } }
"""

SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const key = row => row.cells[column].dataset.key;
    const rows = [...body.rows];
    const numbers = rows.every(row => key(row) === undefined || key(row) !== "" && !isNaN(key(row)));
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numbers;
    const way = down ? -1 : 1;
    rows.sort((a, b) => {
      const one = key(a), two = key(b);
      if (one === undefined || two === undefined) return (one === undefined) - (two === undefined);
      return way * (numbers ? one - two : one.localeCompare(two, undefined, {numeric: true}));
    });
    body.append(...rows);
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }));
}
"""
