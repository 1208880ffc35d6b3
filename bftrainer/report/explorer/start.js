// The page's theme, and the explorer: its tools, charts and tables, once its data is unpacked.

const root = document.documentElement;

function theme(name) {
  root.dataset.theme = name;
  const button = document.getElementById("theme");
  button.textContent = name === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-pressed", String(name === "dark"));
}

// All of the window in small, with the part that is seen as a frame that can be drawn anew and moved.
function overview(axis, chart) {
  const place = document.getElementById("overview"), canvas = place.querySelector("canvas");
  let from = null, was = null;
  const scaleOf = () => (place.clientWidth - gutter(place.clientWidth) - GAP) / axis.window;
  const timeOf = (event) => (event.clientX - place.getBoundingClientRect().left - gutter(place.clientWidth)) / scaleOf();
  axis.listeners.push(() => {
    const width = place.clientWidth, height = place.clientHeight, [pen, color] = painter(canvas, width, height);
    const left = gutter(width), scale = scaleOf();
    let most = 1;
    chart.lines.forEach((line) => line.value.forEach((value) => { most = Math.max(most, value || 0); }));
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, width - left - GAP, height);
    pen.clip();
    chart.lines.forEach((line) => {
      pen.strokeStyle = color(line.color);
      pen.beginPath();
      line.time.forEach((time, row) => {
        if (row) { pen.lineTo(left + time * scale, height - 3 - line.value[row - 1] / most * (height - 6)); }
        pen.lineTo(left + time * scale, height - 3 - line.value[row] / most * (height - 6));
      });
      pen.stroke();
    });
    pen.restore();
    pen.fillStyle = color("shade");
    pen.fillRect(left, 0, axis.begin * scale, height);
    pen.fillRect(left + axis.end * scale, 0, (axis.window - axis.end) * scale, height);
    pen.strokeStyle = color("link");
    pen.lineWidth = 2;
    pen.strokeRect(left + axis.begin * scale + 1, 1, Math.max(2, (axis.end - axis.begin) * scale - 2), height - 2);
    document.getElementById("seen").textContent = `${axis.words(axis.begin)} to ${axis.words(axis.end)}, ${lasting(axis.end - axis.begin)}`;
  });
  place.addEventListener("pointerdown", (event) => {
    from = timeOf(event);
    const isAll = axis.end - axis.begin > 0.999 * axis.window;
    was = !isAll && from > axis.begin && from < axis.end ? [axis.begin, axis.end] : null;
    place.setPointerCapture(event.pointerId);
  });
  place.addEventListener("pointermove", (event) => {
    if (from === null) { return; }
    const to = timeOf(event);
    if (was) { axis.show(was[0] + to - from, was[1] + to - from); }
    else if (Math.abs(to - from) * scaleOf() > 4) { axis.show(Math.min(from, to), Math.max(from, to)); }
  });
  place.addEventListener("lostpointercapture", () => { from = null; });
}

function options(select, values) {
  select.replaceChildren(...values.map(([value, label]) => new Option(label, value)));
}

// Tasks and decisions of one run at a time, and who held nodes when.
function tables(axis, data) {
  const of = (id) => document.getElementById(id);
  const search = of("search"), state = of("state"), kind = of("kind"), outcome = of("outcome");
  let run = null, tasks = null, decisions = null, seen = "";
  const gantt = new Gantt(axis, of("gantt-chart"), (task) => { gantt.select(task); tasks.select(task); });
  function filter() {
    const wanted = search.value.trim().toLowerCase(), all = run.tasks, found = [];
    for (let row = 0; row < all.count; row += 1) {
      if ((!wanted || all.name[row].toLowerCase().includes(wanted)) && (!state.value || stateOf(all, row) === state.value) &&
          (!kind.value || kindOf(all, row) === kind.value)) { found.push(row); }
    }
    // Where nobody has sorted, tasks come in the order in which they started.
    const started = (row) => (Number.isNaN(all.started[row]) ? Infinity : all.started[row]);
    tasks.show(tasks.by === null ? found.sort((one, other) => started(one) - started(other) || one - other) : found);
    of("task-count").textContent = `${counted(found.length)} of ${several(all.count, "task")}`;
  }
  // What is listed is left as it is, with the keyboard's focus, until another part of the time is seen.
  function listSeen() { if (seen !== `${axis.begin} ${axis.end}`) { listDecisions(); } }
  function listDecisions() {
    const all = run.decisions, found = [];
    seen = `${axis.begin} ${axis.end}`;
    for (let row = 0; row < all.time.length; row += 1) {
      if (all.time[row] >= axis.begin && all.time[row] <= axis.end && (!outcome.value || run.outcomes[all.outcome[row]] === outcome.value)) { found.push(row); }
    }
    decisions.show(found);
    of("decision-count").textContent = `${counted(found.length)} of ${several(all.time.length, "decision")}, those in the part that is seen`;
  }
  function start(number) {
    run = data.runs[number];
    document.querySelectorAll(".more").forEach((each) => each.remove());
    tasks = new SortedTable(of("task-table"), taskColumns(axis, run), (task) => { gantt.select(task); tasks.select(task); });
    tasks.shown = (rows) => gantt.show(run, rows);
    decisions = new SortedTable(of("decision-table"), decisionColumns(axis, run.decisions, run.outcomes), (row) => {
      decisions.select(row);
      axis.mark = run.decisions.time[row];
      axis.changed();
    });
    const kinds = [...new Set(run.tasks.name.map((_, row) => kindOf(run.tasks, row)))].sort(ALPHABET.compare);
    const word = kind.previousElementSibling.textContent = run.tasks.group ? "group" : "kind";
    options(kind, [["", `all ${word}s`], ...(kinds.length <= 50 ? kinds.map((each) => [each, each]) : [])]);
    kind.parentElement.hidden = kinds.length < 2 || kinds.length > 50;
    options(outcome, [["", "all outcomes"], ...run.outcomes.map((each) => [each, each])]);
    of("rows-by").parentElement.hidden = !run.by_node;
    gantt.byNode = Boolean(run.by_node) && of("rows-by").value === "nodes";
    filter();
    listDecisions();
  }
  [search, state, kind].forEach((each) => each.addEventListener("input", filter));
  outcome.addEventListener("input", listDecisions);
  of("rows-by").addEventListener("input", (event) => { gantt.byNode = event.target.value === "nodes"; axis.changed(); });
  options(of("run"), data.runs.map((each, number) => [number, each.name]));
  of("run").parentElement.hidden = data.runs.length < 2;
  of("run").addEventListener("input", (event) => start(Number(event.target.value)));
  let waiting = null;
  axis.listeners.push(() => { clearTimeout(waiting); waiting = setTimeout(listSeen, 120); });
  start(0);
  return { again: () => { tasks.render(); decisions.render(); } };
}

async function explore() {
  const data = unpacked(await inflated(document.getElementById("columns").textContent),
    JSON.parse(document.getElementById("data").textContent));
  document.querySelectorAll(".script").forEach((each) => { each.hidden = false; });
  document.querySelectorAll(".static").forEach((each) => each.remove());
  const axis = new TimeAxis(data.window, data.start, data.zone || "UTC"), zone = document.getElementById("clock");
  const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
  options(zone, data.start === null ? [["start", "time since the start"]]
    : [...(data.zone ? [[data.zone, `${data.zone}, as the log`]] : []), ["UTC", "UTC"], ["local", `here, ${mine}`],
      ["start", "time since the start"]]);
  data.charts.forEach((chart) => new LineView(axis, chart, document.getElementById(`${chart.key}-chart`)));
  overview(axis, data.charts[0]);
  const linked = tables(axis, data);
  zone.addEventListener("input", () => { axis.zone = zone.value; linked.again(); axis.changed(); });
  document.querySelectorAll("#tools button[data-key]").forEach((button) => {
    button.addEventListener("click", () => axis.press(button.dataset.key));
  });
  new ResizeObserver(() => axis.changed()).observe(document.querySelector("main"));
  root.addEventListener("themed", () => axis.changed());
  // On paper all is light; canvases are as they were drawn.
  let before = null;
  window.addEventListener("beforeprint", () => { before = root.dataset.theme; theme("light"); axis.draw(); });
  window.addEventListener("afterprint", () => { theme(before); axis.draw(); });
  window.explorer = axis;
  axis.draw();
  root.dataset.drawn = String(document.querySelectorAll(".chart").length);
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
function retheme(name) { theme(name); root.dispatchEvent(new Event("themed")); }
theme(dark.matches ? "dark" : "light");
dark.addEventListener("change", (event) => retheme(event.matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => retheme(root.dataset.theme === "dark" ? "light" : "dark"));
explore();
