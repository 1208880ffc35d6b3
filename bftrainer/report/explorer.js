
// The page's theme, charts over one time axis (uPlot), who held nodes when, and tables that can be sorted and searched.

const root = document.documentElement, of = (id) => document.getElementById(id);
const PAPER = 680, NAMED_ROW = 9, FIRST_ROWS = 12, ALONE = ["mousedown", "mouseup", "dblclick"];
const TASK_COLORS = ["blue", "green", "purple", "sky", "gantt4", "gantt2"];
const SECONDS = { "µs": 1e-6, ms: 1e-3, min: 60, h: 3600, d: 86400, Wh: 3600, kWh: 3.6e6, MWh: 3.6e9 };
const WITH_DATE = ["\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1];
const TIMES = [
  [31536000, "{YYYY}", null, null, null, null, null, null, 1],
  [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", ...WITH_DATE],
  [1, "{HH}:{mm}:{ss}", ...WITH_DATE],
];

const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const counted = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: Math.abs(value) < 100 ? 3 : 15 });
const several = (value, one) => `${counted(value)} ${one}${value === 1 ? "" : "s"}`;
const isolated = (name) => `\u2068${name}\u2069`;

// The data, with numbers in place of their differences.
async function load() {
  const bytes = Uint8Array.from(atob(of("data").textContent), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text(), (_, value) => {
    if (!value || !value.d) { return value; }
    let sum = 0;
    return value.d.map((step) => (step === null ? null : (sum += step) * value.s));
  });
}

// All charts, what part of the time they show, and how they are zoomed together.
class Charts {
  constructor(data) {
    Object.assign(this, { data, all: [], begin: 0, end: data.window, listeners: [] });
    this.scale = data.start === null ? 3600 : 1;
    this.shift = data.start === null ? 0 : data.start;
  }

  at(seconds) { return this.shift + seconds / this.scale; }

  seconds(x) { return (x - this.shift) * this.scale; }

  words(seconds) {
    if (this.data.start === null) { return `${(seconds / 3600).toFixed(2)} h after the start`; }
    return uPlot.fmtDate("{D} {MMM} {YYYY}, {HH}:{mm}:{ss}")(this.date(this.at(seconds)));
  }

  date(x) { return uPlot.tzDate(new Date(Math.round(x * 1e3)), this.data.zone); }

  show(begin, end) {
    const width = Math.min(this.data.window, Math.max(Math.min(1, this.data.window), end - begin));
    this.begin = Math.min(Math.max(0, (begin + end - width) / 2), this.data.window - width);
    this.end = this.begin + width;
    this.draw();
  }

  draw() {
    this.isDrawing = true;
    this.listeners.forEach((listener) => listener());
    const range = { min: this.at(this.begin), max: this.at(this.end) };
    this.all.forEach((chart) => chart.batch(() => chart.setScale("x", range)));
    this.all.forEach((chart) => chart.redraw(true, true));
    this.isDrawing = false;
    const zone = this.data.start === null ? "" : ` (${this.data.zone})`;
    of("seen").textContent = `${this.words(this.begin)} to ${this.words(this.end)}${zone}`;
  }

  // A chart was zoomed by the mouse: the others follow.
  follow(chart, key) {
    if (key !== "x" || this.isDrawing || !this.isReady) { return; }
    const begin = this.seconds(chart.scales.x.min), end = this.seconds(chart.scales.x.max);
    if (Math.abs(begin - this.begin) + Math.abs(end - this.end) > 1e-6 * this.data.window) {
      queueMicrotask(() => this.show(begin, end));
    }
  }

  press(key) {
    const width = this.end - this.begin, move = { ArrowLeft: -width / 4, ArrowRight: width / 4 }[key];
    if (key === "+" || key === "=") { this.show(this.begin + width / 4, this.end - width / 4); }
    else if (key === "-") { this.show(this.begin - width / 2, this.end + width / 2); }
    else if (move) { this.show(this.begin + move, this.end + move); }
    else if (key === "0") { this.show(0, this.data.window); }
    else { return false; }
    return true;
  }

  // Add a chart to a place of the page; its left edge is that of all others.
  add(place, height, series, columns, more) {
    const gutter = () => (place.clientWidth < 600 ? 64 : 132), isDate = this.data.start !== null;
    const grid = { stroke: () => color("rule"), width: 1 };
    const axis = { stroke: () => color("soft"), grid, ticks: { show: false } };
    const x = { ...axis, space: 80, values: isDate ? TIMES : (_, ticks) => ticks.map((tick) => `${counted(tick)} h`) };
    const time = (_, value) => (value == null ? "-" : this.words(this.seconds(value)));
    const chart = new uPlot({
      width: place.clientWidth, height, padding: [10, 14, 0, 0], tzDate: (value) => this.date(value),
      scales: { x: { time: isDate }, y: { range: (_, low, high) => [0, 1.04 * high || 1] } },
      axes: [x, { ...axis, size: gutter, values: (_, ticks) => ticks.map(counted) }],
      series: [{ label: "time", value: time }, ...series],
      cursor: { sync: { key: "time", filters: { pub: (type) => !ALONE.includes(type) } }, y: false },
      ...more(x, gutter),
      hooks: { setScale: [(found, key) => this.follow(found, key)], draw: [more.draw || (() => {})] },
    }, columns, place);
    chart.over.addEventListener("dblclick", () => queueMicrotask(() => this.show(0, this.data.window)));
    place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target !== place) { return; }
      if ((more.press && more.press(event.key)) || this.press(event.key)) { event.preventDefault(); }
    });
    this.all.push(chart);
    return chart;
  }

  // Lines of steps, all at the same times: each value lasts until the next one.
  addLines(key, { unit, lines }) {
    const columns = uPlot.join(lines.map((line) => [line.time.map((time) => this.at(time)), line.value]));
    columns.slice(1).forEach((values) => values.forEach((value, row) => {
      if (value === undefined && row) { values[row] = values[row - 1]; }
    }));
    const series = lines.map((line) => ({
      label: `${line.name} (${unit})`,
      dash: line.dash,
      width: line.fill ? 1 : 1.5,
      points: { show: false },
      paths: uPlot.paths.stepped({ align: 1 }),
      stroke: () => color(line.color),
      fill: line.fill ? () => color("shade") : undefined,
      value: (_, value) => (value == null ? "-" : counted(value)),
    }));
    const markers = { stroke: (_, number) => `var(--${lines[number - 1].color})`, fill: () => "transparent" };
    this.add(of(`${key}-chart`), 260, series, columns, () => ({ legend: { markers } }));
  }
}

// Who held nodes when: a row a task, or a row a node, of those that hold some in the part that is seen.
class Gantt {
  constructor(charts, chosen) {
    Object.assign(this, { charts, chosen, rows: [], selected: null, byNode: false, text: "" });
    const bare = { splits: () => [], values: () => [] };
    const more = (x, gutter) => ({ axes: [x, { ...bare, size: gutter }], legend: { show: false } });
    more.draw = (chart) => this.paint(chart);
    more.press = (key) => this.press(key);
    const columns = [[charts.at(0), charts.at(charts.data.window)], [0, 0]];
    this.chart = charts.add(of("gantt-chart"), 460, [{ points: { show: false } }], columns, more);
    this.chart.over.addEventListener("mousemove", (event) => this.tell(this.spanAt(event)));
    this.chart.over.addEventListener("click", (event) => {
      const found = this.spanAt(event);
      if (found) { this.chosen(this.byNode && found.span !== null ? this.spans.task[found.span] : found.row); }
    });
    charts.listeners.push(() => this.layout());
  }

  show(run) {
    Object.assign(this, { run, selected: null });
    this.kinds = [run.spans, run.by_node].map((spans) => spans && Gantt.grouped(spans));
    this.layout();
  }

  // Intervals with the first one of each row: those of a row lie side by side, in order of time.
  static grouped(spans) {
    const first = new Map();
    spans.row.forEach((row, number) => { if (!first.has(row)) { first.set(row, number); } });
    return { ...spans, first, end: spans.begin.map((begin, number) => begin + spans.length[number]) };
  }

  get spans() { return this.kinds[this.byNode ? 1 : 0]; }

  taskOf(span) { return this.byNode ? this.spans.task[span] : this.spans.row[span]; }

  name(row) { return this.byNode ? this.run.nodes[row] : this.run.tasks[row]; }

  isWanted(task) { return `${this.run.tasks[task]} ${this.run.about[task]}`.toLowerCase().includes(this.text); }

  // Numbers of the intervals of a row that are seen.
  seen(row) {
    const { first, row: rows, begin, end } = this.spans, found = [];
    for (let span = first.get(row); rows[span] === row && begin[span] < this.charts.end; span += 1) {
      if (end[span] > this.charts.begin) { found.push(span); }
    }
    return found;
  }

  layout() {
    const wanted = this.run.tasks.map((_, task) => this.isWanted(task));
    this.rows = [...this.spans.first.keys()].filter((row) => this.seen(row).some((span) => wanted[this.taskOf(span)]));
    const { first, begin } = this.spans;
    const order = (row) => (this.byNode ? 0 : begin[first.get(row)]);
    this.rows.sort((one, other) => order(one) - order(other) || one - other);
    of("gantt-count").textContent = `${several(this.rows.length, this.byNode ? "node" : "task")} in view`;
    this.wanted = wanted;
  }

  paint(chart) {
    if (!this.run) { return; }
    const { left, top, width, height } = chart.bbox, pen = chart.ctx, ratio = window.devicePixelRatio || 1;
    const deep = Math.min(22 * ratio, height / Math.max(1, this.rows.length)), { begin, end, nodes } = this.spans;
    const scale = width / (this.charts.end - this.charts.begin);
    const most = (nodes || []).reduce((one, other) => Math.max(one, other), 1);
    const shades = [1, 2, 3, 4].map((number) => color(`gantt${number}`)), kinds = TASK_COLORS.map(color);
    const chosen = color("orange"), pale = color("rule"), ink = color("ink");
    Object.assign(this, { deep: deep / ratio });
    pen.save();
    pen.textBaseline = "middle";
    pen.font = `${Math.min(12, this.deep) * ratio}px system-ui, sans-serif`;
    this.rows.forEach((row, place) => {
      const y = top + place * deep, size = Math.max(1, deep - (deep > 6 ? 2 : 0));
      if (deep >= NAMED_ROW * ratio) {
        pen.textAlign = "left";
        pen.fillStyle = ink;
        const name = this.name(row), room = Math.floor(left / ratio / 7);
        pen.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, 2 * ratio, y + deep / 2);
      }
      this.seen(row).forEach((span) => {
        const task = this.taskOf(span), from = Math.max(left, left + (begin[span] - this.charts.begin) * scale);
        const to = Math.min(left + width, left + (end[span] - this.charts.begin) * scale);
        if (task === this.selected) { pen.fillStyle = chosen; }
        else if (this.byNode) { pen.fillStyle = this.wanted[task] ? kinds[task % kinds.length] : pale; }
        else { pen.fillStyle = shades[Math.max(0, Math.ceil(4 * nodes[span] / most) - 1)]; }
        pen.fillRect(from, y, Math.max(ratio, to - from), size);
      });
    });
    pen.restore();
  }

  // The row at a place, and the interval there, or the nearest one within three pixels.
  spanAt(event) {
    const row = this.rows[Math.floor(event.offsetY / this.deep)];
    if (row === undefined) { return null; }
    const per = (this.charts.end - this.charts.begin) / this.chart.over.clientWidth;
    const time = this.charts.begin + event.offsetX * per;
    const { begin, end } = this.spans;
    const span = this.seen(row).find((each) => begin[each] - 3 * per <= time && end[each] + 3 * per >= time);
    return { row, span: span === undefined ? null : span };
  }

  tell(found) {
    if (!found) { return; }
    const { row, span } = found, tip = of("gantt-tip"), name = isolated(this.name(row));
    if (span === null) {
      tip.textContent = `${name}: ${this.byNode ? "no task had it" : "it held no node"} then`;
      return;
    }
    const held = this.byNode ? `node ${name}` : several(this.spans.nodes[span], "node");
    const from = this.charts.words(this.spans.begin[span]), to = this.charts.words(this.spans.end[span]);
    tip.textContent = `${isolated(this.run.tasks[this.taskOf(span)])} held ${held} from ${from} to ${to}`;
  }

  select(task) {
    this.selected = task;
    this.chart.redraw(false);
  }

  // Arrows choose the row above or below; Enter shows all the time in which the chosen task held nodes.
  press(key) {
    const mine = this.kinds[0], move = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (key === "Enter" && mine.first.has(this.selected)) {
      const spans = mine.row.flatMap((row, span) => (row === this.selected ? [span] : []));
      this.charts.show(mine.begin[spans[0]], mine.end[spans[spans.length - 1]]);
      return true;
    }
    if (!move || this.byNode || !this.rows.length) { return false; }
    const place = Math.min(this.rows.length - 1, Math.max(0, this.rows.indexOf(this.selected) + move));
    this.chosen(this.rows[place]);
    this.tell({ row: this.rows[place], span: this.seen(this.rows[place])[0] });
    return true;
  }
}

// What a cell is sorted by: a number in its base unit, or its text.
function sortKey(text) {
  const found = /^(?:> )?([+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?) ?([^\d\s]*)$/.exec(text);
  if (text === "-" || !found) { return text === "-" ? NaN : text; }
  return Number(found[1].replaceAll(",", "")) * (SECONDS[found[2]] || 1);
}

// Let a table be sorted by its headings and, if it is long, searched.
function enhance(table) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      const isDown = head.getAttribute("aria-sort") === "ascending", sign = isDown ? -1 : 1;
      const rows = [...body.rows].map((row) => [sortKey(row.cells[column].textContent), row]);
      const isNumber = rows.every(([key]) => typeof key === "number");
      const compare = (a, b) => (isNumber ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
      rows.sort(([a], [b]) => Number.isNaN(a) - Number.isNaN(b) || (Number.isNaN(a) ? 0 : sign * compare(a, b)));
      body.append(...rows.map(([, row]) => row));
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    });
    head.replaceChildren(button);
  });
  if (body.rows.length <= FIRST_ROWS) { return; }
  const label = document.createElement("label"), input = document.createElement("input");
  input.type = "search";
  label.className = "tools";
  label.append("rows with ", input);
  input.addEventListener("input", () => {
    const text = input.value.trim().toLowerCase();
    [...body.rows].forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(text); });
  });
  table.parentElement.before(label);
}

// Mark the row of a task in its table.
function mark(name) {
  document.querySelectorAll("tr.chosen").forEach((row) => row.classList.remove("chosen"));
  const rows = [...document.querySelectorAll("tbody tr")];
  const row = rows.find((each) => each.cells.length > 6 && each.cells[0].textContent === name);
  if (row) {
    row.classList.add("chosen");
    const box = row.closest(".scroll");
    box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }
}

function theme(name) {
  root.dataset.theme = name;
  of("theme").textContent = name === "dark" ? "Light" : "Dark";
  of("theme").setAttribute("aria-pressed", String(name === "dark"));
}

async function explore() {
  const data = await load();
  document.querySelectorAll(".script").forEach((each) => { each.hidden = false; });
  const charts = new Charts(data);
  Object.entries(data.charts).forEach(([key, chart]) => charts.addLines(key, chart));
  const choose = (task) => { gantt.select(task); mark(gantt.run.tasks[task]); };
  const gantt = new Gantt(charts, choose), again = () => charts.draw();
  const on = (id, act) => {
    if (of(id)) { of(id).addEventListener("input", (event) => { act(event.target.value); again(); }); }
  };
  gantt.show(data.runs[0]);
  on("run", (value) => { gantt.byNode = false; gantt.show(data.runs[Number(value)]); });
  on("search", (value) => { gantt.text = value.trim().toLowerCase(); });
  on("rows-by", (value) => { gantt.byNode = value === "nodes"; });
  document.querySelectorAll("button[data-key]").forEach((button) => {
    button.addEventListener("click", () => charts.press(button.dataset.key));
  });
  document.querySelectorAll(".scroll table").forEach(enhance);
  const fit = (onPaper) => charts.all.forEach((chart) => {
    const width = Math.min(chart.root.parentElement.clientWidth, onPaper === true ? PAPER : Infinity);
    if (width !== chart.width) { chart.setSize({ width, height: chart.height }); }
  });
  new ResizeObserver(() => fit(window.matchMedia("print").matches)).observe(document.querySelector("main"));
  window.addEventListener("themed", again);
  // On paper all is light.
  let before = null;
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; theme("light"); fit(true); again(); });
  window.addEventListener("afterprint", () => { theme(before); fit(false); again(); });
  charts.isReady = true;
  window.explorer = charts;
  again();
  root.dataset.drawn = String(charts.all.length);
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
function retheme(name) { theme(name); window.dispatchEvent(new Event("themed")); }
theme(dark.matches ? "dark" : "light");
dark.addEventListener("change", (event) => retheme(event.matches ? "dark" : "light"));
of("theme").addEventListener("click", () => retheme(root.dataset.theme === "dark" ? "light" : "dark"));
explore();
