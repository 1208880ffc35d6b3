
// Charts over one time axis (uPlot), and who held nodes when on a canvas of the same axis.

const root = document.documentElement, of = (id) => document.getElementById(id);
const PAPER = 680, NAMED_ROW = 9, OWN_EVENTS = ["mousedown", "mouseup", "dblclick"];

const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const format = (value) => value.toLocaleString("en-US", { maximumSignificantDigits: Math.abs(value) < 100 ? 3 : 15 });

async function load() {
  const bytes = Uint8Array.from(atob(of("data").textContent), (sign) => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

// All charts, and the seconds of the window that they show: dates where all runs begin together, else hours.
class Charts {
  constructor(data) {
    Object.assign(this, { data, all: [], begin: 0, end: data.window, isDate: data.start !== null });
  }

  at(seconds) { return this.isDate ? this.data.start + seconds : seconds / 3600; }

  seconds(x) { return this.isDate ? x - this.data.start : x * 3600; }

  date(x) { return uPlot.tzDate(new Date(Math.round(x * 1e3)), this.data.zone); }

  words(seconds) {
    if (!this.isDate) { return `${(seconds / 3600).toFixed(2)} h after the start`; }
    return uPlot.fmtDate("{D} {MMM} {YYYY}, {HH}:{mm}:{ss}")(this.date(this.at(seconds)));
  }

  show(begin, end) {
    const width = Math.min(this.data.window, Math.max(1, end - begin));
    this.begin = Math.min(Math.max(0, (begin + end - width) / 2), this.data.window - width);
    this.end = this.begin + width;
    this.draw();
  }

  draw() {
    const range = { min: this.at(this.begin), max: this.at(this.end) };
    this.isDrawing = true;
    this.all.forEach((chart) => chart.batch(() => chart.setScale("x", range)));
    this.all.forEach((chart) => chart.redraw(true, true));
    this.isDrawing = false;
    const zone = this.isDate ? ` (${this.data.zone})` : "";
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

  // Show from one to another place of the part that is seen, which is 0 to 1.
  zoom(from, to) {
    const width = this.end - this.begin;
    this.show(this.begin + from * width, this.begin + to * width);
  }

  // Add a chart to a place of the page; its left edge is that of all others.
  add(place, height, columns, series, y, more) {
    const gutter = () => (place.clientWidth < 600 ? 64 : 132), label = this.isDate ? "{D} {MMM}\n{HH}:{mm}:{ss}" : "";
    const axis = { stroke: () => color("soft"), grid: { stroke: () => color("rule"), width: 1 } };
    const ticks = (_, values) => values.map((x) => (label ? uPlot.fmtDate(label)(this.date(x)) : `${format(x)} h`));
    const time = (_, value) => (value == null ? "-" : this.words(this.seconds(value)));
    const chart = new uPlot({
      width: place.clientWidth, height, tzDate: (value) => this.date(value),
      scales: { x: { time: this.isDate }, y: { range: (_, low, high) => [0, 1.04 * high || 1] } },
      axes: [{ ...axis, space: 80, values: ticks }, { ...axis, size: gutter, ...y }],
      series: [{ label: "time", value: time }, ...series],
      cursor: { sync: { key: "time", filters: { pub: (type) => !OWN_EVENTS.includes(type) } }, y: false },
      legend: more.legend,
      hooks: { setScale: [(found, key) => this.follow(found, key)], draw: more.draw || [] },
    }, columns, place);
    chart.over.addEventListener("dblclick", () => queueMicrotask(() => this.show(0, this.data.window)));
    this.all.push(chart);
    return chart;
  }

  // Lines of steps: each value lasts until the next one.
  addLines(lines) {
    const columns = uPlot.join(lines.map((line) => [line.time.map((time) => this.at(time)), line.value]));
    columns.slice(1).forEach((values) => values.forEach((value, row) => {
      if (value === undefined && row) { values[row] = values[row - 1]; }
    }));
    const series = lines.map((line) => ({
      label: `${line.name} (nodes)`,
      dash: line.dash,
      width: line.fill ? 1 : 1.5,
      points: { show: false },
      paths: uPlot.paths.stepped({ align: 1 }),
      stroke: () => color(line.color),
      fill: line.fill ? () => color("shade") : undefined,
      value: (_, value) => (value == null ? "-" : format(value)),
    }));
    const markers = { stroke: (_, number) => `var(--${lines[number - 1].color})`, fill: () => "transparent" };
    const y = { values: (_, ticks) => ticks.map(format) };
    this.add(of("pool-chart"), 260, columns, series, y, { legend: { markers } });
  }
}

// Who held nodes when: a row for each task that holds some in the part that is seen, darker with more.
class Gantt {
  constructor(charts) {
    Object.assign(this, { charts, rows: [] });
    const columns = [[charts.at(0), charts.at(charts.data.window)], [0, 0]], y = { splits: () => [], values: () => [] };
    const more = { legend: { show: false }, draw: [(chart) => this.paint(chart)] };
    charts.add(of("gantt-chart"), 460, columns, [{ points: { show: false } }], y, more);
  }

  show({ tasks, spans: { begin, length, task, nodes } }) {
    const rows = new Map();
    task.forEach((number, at) => {
      if (!rows.has(number)) { rows.set(number, { name: tasks[number], spans: [] }); }
      rows.get(number).spans.push({ begin: begin[at], end: begin[at] + length[at], nodes: nodes[at] });
    });
    this.rows = [...rows.values()].sort((one, other) => one.spans[0].begin - other.spans[0].begin);
    this.most = nodes.reduce((one, other) => Math.max(one, other), 1);
  }

  paint(chart) {
    const { left, top, width, height } = chart.bbox, pen = chart.ctx, ratio = window.devicePixelRatio || 1;
    const { begin, end } = this.charts, scale = width / (end - begin);
    const place = (time) => Math.min(left + width, Math.max(left, left + (time - begin) * scale));
    const shades = [1, 2, 3, 4].map((number) => color(`gantt${number}`)), ink = color("ink");
    const isSeen = (span) => span.begin < end && span.end > begin, rows = this.rows.filter((row) => row.spans.some(isSeen));
    const deep = Math.min(22 * ratio, height / Math.max(1, rows.length)), room = Math.floor(left / ratio / 7);
    pen.save();
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.font = `${Math.min(12 * ratio, deep)}px system-ui, sans-serif`;
    rows.forEach(({ name, spans }, number) => {
      const y = top + number * deep;
      if (deep >= NAMED_ROW * ratio) {
        pen.fillStyle = ink;
        pen.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, 2 * ratio, y + deep / 2);
      }
      spans.filter(isSeen).forEach((span) => {
        const from = place(span.begin);
        pen.fillStyle = shades[Math.max(0, Math.ceil(4 * span.nodes / this.most) - 1)];
        pen.fillRect(from, y, Math.max(ratio, place(span.end) - from), Math.max(1, deep - (deep > 6 ? 2 : 0)));
      });
    });
    pen.restore();
    of("gantt-count").textContent = `${format(rows.length)} tasks in view`;
  }
}

async function explore() {
  const data = await load(), charts = new Charts(data);
  document.querySelectorAll(".script").forEach((each) => { each.hidden = false; });
  charts.addLines(data.lines);
  const gantt = new Gantt(charts);
  gantt.show(data.runs[0]);
  of("run")?.addEventListener("input", (event) => {
    gantt.show(data.runs[Number(event.target.value)]);
    charts.draw();
  });
  document.querySelectorAll("button[data-from]").forEach((button) => {
    button.addEventListener("click", () => charts.zoom(Number(button.dataset.from), Number(button.dataset.to)));
  });
  const fit = (most) => charts.all.forEach((chart) => {
    chart.setSize({ width: Math.min(chart.root.parentElement.clientWidth, most), height: chart.height });
  });
  // On paper all is light.
  const print = (isPaper) => {
    root.classList.toggle("light", isPaper);
    fit(isPaper ? PAPER : Infinity);
    charts.draw();
  };
  window.addEventListener("resize", () => fit(Infinity));
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.draw());
  charts.isReady = true;
  window.explorer = charts;
  charts.draw();
  root.dataset.drawn = String(charts.all.length);
}

explore();
