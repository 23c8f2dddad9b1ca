// A click on the head of a column sorts the table by it; cells without a key stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const key = row => row.cells[column].dataset.key;
    const rows = [...body.rows];
    const numbers = rows.every(row => key(row) === undefined || key(row) !== "" && !isNaN(key(row)));
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numbers;
    const sign = down ? -1 : 1;
    rows.sort((a, b) => {
      const left = key(a), right = key(b);
      if (left === undefined || right === undefined) return (left === undefined) - (right === undefined);
      return sign * (numbers ? left - right : left.localeCompare(right, undefined, {numeric: true}));
    });
    body.append(...rows);
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }));
}
