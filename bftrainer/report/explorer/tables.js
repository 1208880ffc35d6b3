// Tables that are sorted by their headings, and filtered; a step of rows is in the page at a time.

const STEP_ROWS = 200, ALPHABET = new Intl.Collator("en", { numeric: true });

class SortedTable {
  // Columns are { label, value(row), text(row) }; a column with `share` shows a bar.
  constructor(table, columns, chosen) {
    Object.assign(this, { table, columns, chosen, by: null, down: false, most: STEP_ROWS, rows: [], selected: null });
    const head = table.tHead || table.createTHead();
    head.replaceChildren(document.createElement("tr"));
    this.heads = columns.map((column, number) => {
      const cell = document.createElement("th"), button = document.createElement("button");
      cell.scope = "col";
      button.type = "button";
      button.textContent = column.label;
      button.addEventListener("click", () => this.sort(number));
      cell.appendChild(button);
      head.rows[0].appendChild(cell);
      return cell;
    });
    // A new body, without what earlier tables listen to.
    this.body = document.createElement("tbody");
    table.tBodies[0].replaceWith(this.body);
    this.body.addEventListener("click", (event) => {
      const line = event.target.closest("tr[data-row]");
      if (line) { chosen(Number(line.dataset.row)); }
    });
    // One row's button is reached by Tab, the others from there by arrows.
    this.body.addEventListener("keydown", (event) => {
      const line = event.target.closest("tr"), next = { ArrowDown: line.nextSibling, ArrowUp: line.previousSibling }[event.key];
      if (next) {
        event.preventDefault();
        event.target.tabIndex = -1;
        next.querySelector("button").tabIndex = 0;
        next.querySelector("button").focus();
      }
    });
    this.more = document.createElement("button");
    this.more.type = "button";
    this.more.className = "more";
    this.more.addEventListener("click", () => { this.most += STEP_ROWS; this.render(); });
    table.parentElement.after(this.more);
  }

  sort(number) {
    this.down = this.by === number ? !this.down : false;
    this.by = number;
    this.heads.forEach((cell, place) => {
      if (place === number) { cell.setAttribute("aria-sort", this.down ? "descending" : "ascending"); }
      else { cell.removeAttribute("aria-sort"); }
    });
    this.show(this.unsorted);
  }

  // Show rows in the order of the chosen column; those without a value come last.
  show(rows) {
    this.unsorted = rows;
    this.rows = rows.slice();
    if (this.by !== null) {
      const value = this.columns[this.by].value, sign = this.down ? -1 : 1;
      const isMissing = (each) => typeof each === "number" && Number.isNaN(each);
      this.rows.sort((one, other) => {
        const a = value(one), b = value(other);
        if (isMissing(a) || isMissing(b)) { return isMissing(a) - isMissing(b); }
        return sign * (typeof a === "string" ? ALPHABET.compare(a, b) : a - b);
      });
    }
    this.most = STEP_ROWS;
    this.render();
    if (this.shown) { this.shown(this.rows); }
  }

  render() {
    const lines = this.rows.slice(0, this.most).map((row, place) => {
      const line = document.createElement("tr");
      line.dataset.row = row;
      if (row === this.selected) { line.className = "chosen"; }
      this.columns.forEach((column, number) => {
        const cell = document.createElement("td"), text = column.text(row);
        if (number === 0) {
          const button = document.createElement("button");
          button.type = "button";
          button.className = "plain";
          button.tabIndex = place ? -1 : 0;
          button.textContent = text;
          cell.appendChild(button);
        } else if (column.share) {
          const bar = document.createElement("progress");
          bar.max = 1;
          bar.value = column.value(row);
          bar.setAttribute("aria-label", `progress of ${this.columns[0].text(row)}`);
          cell.append(bar, ` ${text}`);
        } else {
          cell.textContent = text;
        }
        line.appendChild(cell);
      });
      return line;
    });
    this.body.replaceChildren(...lines);
    const left = this.rows.length - Math.min(this.most, this.rows.length);
    this.more.hidden = left === 0;
    this.more.textContent = `${counted(this.rows.length - left)} of ${counted(this.rows.length)} are listed: show ${counted(Math.min(left, STEP_ROWS))} more`;
  }

  // Mark a row, and bring it into the table's view if it is among those in the page.
  select(row) {
    this.selected = row;
    const place = this.rows.indexOf(row);
    if (place >= this.most) { this.most = place + 1; this.render(); }
    this.body.querySelectorAll(".chosen").forEach((line) => { line.className = ""; });
    const line = this.body.querySelector(`tr[data-row="${row}"]`), box = this.table.parentElement;
    if (line) {
      line.className = "chosen";
      box.scrollTop = Math.max(0, line.offsetTop - box.clientHeight / 2);
    }
  }
}

function percent(share, digits) { return `${(100 * share).toFixed(digits)} %`; }

// How long a task waited, or has waited until the end; NaN if it was submitted later.
function waitOf(run, row) {
  const { submitted, started } = run.tasks, wait = (Number.isNaN(started[row]) ? run.window : started[row]) - submitted[row];
  return wait < 0 ? NaN : wait;
}

function taskColumns(axis, run) {
  const tasks = run.tasks, thousands = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  const time = (label) => ({
    label, value: (row) => tasks[label][row], text: (row) => (Number.isNaN(tasks[label][row]) ? "-" : axis.words(tasks[label][row])),
  });
  const count = (label) => ({ label, value: (row) => tasks[label][row], text: (row) => counted(tasks[label][row]) });
  const columns = [
    { label: "task", value: (row) => tasks.name[row], text: (row) => tasks.name[row] },
    { label: "progress", share: true, value: (row) => tasks.share[row], text: (row) => percent(tasks.share[row], 0) },
    ...(tasks.group ? [{ label: "group", value: (row) => tasks.group[row], text: (row) => tasks.group[row] || "-" }] : []),
    time("submitted"), time("started"), time("completed"),
    { label: "wait", value: (row) => waitOf(run, row), text: (row) => (Number.isNaN(waitOf(run, row)) ? "-"
      : `${Number.isNaN(tasks.started[row]) ? "> " : ""}${lasting(waitOf(run, row))}`) },
    { label: "node-hours", value: (row) => tasks.node_s[row], text: (row) => thousands.format(tasks.node_s[row] / 3600) },
    count("preemptions"), count("rescales"),
  ];
  if (tasks.energy) {
    columns.push({ label: "energy", value: (row) => tasks.energy[row],
      text: (row) => (Number.isNaN(tasks.energy[row]) ? "-" : `${counted(tasks.energy[row] / 3.6e6)} kWh`) });
  }
  return columns;
}

function decisionColumns(axis, decisions, outcomes) {
  return [
    { label: "time", value: (row) => decisions.time[row], text: (row) => axis.words(decisions.time[row]) },
    { label: "outcome", value: (row) => outcomes[decisions.outcome[row]], text: (row) => outcomes[decisions.outcome[row]] },
    { label: "decision time", value: (row) => decisions.solve[row], text: (row) => lasting(decisions.solve[row]) },
    { label: "gap", value: (row) => decisions.gap[row],
      text: (row) => (Number.isNaN(decisions.gap[row]) ? "-" : percent(decisions.gap[row], 2)) },
  ];
}

// What became of a task.
function stateOf(tasks, row) {
  if (!Number.isNaN(tasks.completed[row])) { return "completed"; }
  return Number.isNaN(tasks.started[row]) ? "never started" : "unfinished";
}

// The group of a task or, in runs without groups, what its name says of its kind: the name without its numbers.
function kindOf(tasks, row) { return tasks.group ? tasks.group[row] || "no group" : tasks.name[row].replace(/\d+/g, "#"); }
