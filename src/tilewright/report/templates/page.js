"use strict";
// Draws the charts of a page, and lets its tables be sorted and filtered.

function draw(box) {
  if (box.dataset.drawn || !box.clientWidth) return;
  box.dataset.drawn = "yes";
  const specification = JSON.parse(box.querySelector("script").textContent);
  vegaEmbed(box.appendChild(document.createElement("div")), specification, {
    actions: false, ast: true, renderer: "svg", tooltip: { disableDefaultStyle: true },
  }).then(() => {
    const place = box.closest(".picture");
    if (place) place.scrollLeft = (place.scrollWidth - place.clientWidth) / 2;
  });
}

function drawAll(part) {
  part.querySelectorAll(".chart").forEach(draw);
}

function value(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
}

function compare(one, other) {
  if (typeof one === typeof other && typeof one === "number") return one - other;
  if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
  return one.localeCompare(other, undefined, { numeric: true });
}

function sort(table, heading) {
  const down = heading.getAttribute("aria-sort") === "descending";
  const first = heading.classList.contains("num") ? "descending" : "ascending";
  const turned = down ? "ascending" : "descending";
  const order = heading.hasAttribute("aria-sort") ? turned : first;
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const column = heading.cellIndex;
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, other) => sign * compare(value(one, column), value(other, column)));
  table.tBodies[0].append(...rows);
}

function sortable(table) {
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(table, heading));
    heading.append(button);
  }
}

function filterable(table) {
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Filter rows";
  field.setAttribute("aria-label", "Filter the rows of this table");
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
  });
  table.parentElement.before(field);
}

for (const table of document.querySelectorAll("table.sortable")) {
  sortable(table);
  if (table.tBodies[0].rows.length > 5) filterable(table);
}
for (const part of document.querySelectorAll("details")) {
  part.addEventListener("toggle", () => drawAll(part));
}
drawAll(document);
