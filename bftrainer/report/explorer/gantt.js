// Who held nodes when, on a canvas: a row a task, or a row a node, of those that hold some in the part that is seen.

const LEAST_ROW = 0.4, MOST_ROW = 22, NAMED_ROW = 11;
const TASK_COLORS = ["blue", "green", "purple", "sky", "gantt4", "gantt2"];

// Intervals with the range of each row: those of row r are `first[r]` to `first[r + 1]`, in order of time.
function byRow(spans, count) {
  const first = new Int32Array(count + 1);
  spans.row.forEach((row) => { first[row + 1] += 1; });
  for (let row = 0; row < count; row += 1) { first[row + 1] += first[row]; }
  return Object.assign({ first }, spans);
}

class Gantt {
  constructor(axis, place, chosen) {
    Object.assign(this, { axis, place, chosen, selected: null, byNode: false, rows: [] });
    this.canvas = place.querySelector("canvas");
    this.layer = place.querySelector(".layer");
    this.spacer = place.querySelector(".spacer");
    this.pointer = interactive(axis, place, this.layer, (time, x, y) => this.point(time, x, y), (key) => this.press(key));
    this.layer.addEventListener("click", (event) => {
      if (!this.pointer.dragging()) { this.click(event); }
    });
    place.addEventListener("scroll", () => this.draw());
    axis.listeners.push(() => this.draw());
  }

  // Show a run: its tasks in this order, others not at all, or pale among nodes.
  show(run, tasks) {
    if (run !== this.run) {
      this.run = run;
      this.selected = null;
      const nodes = run.by_node;
      this.spans = byRow(run.spans, run.tasks.count);
      this.most = run.spans.nodes.reduce((one, other) => Math.max(one, other), 1);
      this.nodeSpans = nodes && byRow(Object.assign({ end: nodes.begin.map((at, row) => at + nodes.length[row]) }, nodes),
        nodes.name.length);
    }
    this.tasks = tasks;
    this.wanted = new Uint8Array(run.tasks.count);
    tasks.forEach((task) => { this.wanted[task] = 1; });
    this.byNode = this.byNode && Boolean(this.nodeSpans);
    this.axis.changed();
  }

  get all() { return this.byNode ? this.nodeSpans : this.spans; }

  name(row) { return this.byNode ? this.run.by_node.name[row] : this.run.tasks.name[row]; }

  taskOf(span) { return this.byNode ? this.all.task[span] : this.all.row[span]; }

  // Intervals of a row that are seen.
  range(row) {
    const all = this.all, last = firstAbove(all.begin, this.axis.end, all.first[row], all.first[row + 1]);
    return [firstAbove(all.end, this.axis.begin, all.first[row], last), last];
  }

  isSeen(row) {
    const [first, last] = this.range(row);
    if (!this.byNode) { return first < last; }
    for (let span = first; span < last; span += 1) { if (this.wanted[this.all.task[span]]) { return true; } }
    return false;
  }

  layout() {
    const height = this.place.clientHeight - 40;
    const every = this.byNode ? this.run.by_node.name.map((_, row) => row) : this.tasks;
    this.rows = every.filter((row) => this.isSeen(row));
    this.rowHeight = Math.max(LEAST_ROW, Math.min(MOST_ROW, height / Math.max(1, this.rows.length)));
    this.spacer.style.height = `${Math.max(0, this.rows.length * this.rowHeight - height)}px`;
    return height;
  }

  draw() {
    const height = this.layout(), width = this.layer.clientWidth, left = gutter(width), inner = width - left - GAP;
    const [pen, color] = painter(this.canvas, width, height + 40);
    const shades = ["gantt1", "gantt2", "gantt3", "gantt4"].map(color), kinds = TASK_COLORS.map(color);
    const chosen = color("orange"), pale = color("rule"), scale = inner / (this.axis.end - this.axis.begin);
    drawTimes(this.axis, pen, color, left, inner, 0, height);
    const top = this.place.scrollTop, first = Math.floor(top / this.rowHeight);
    const last = Math.min(this.rows.length, Math.ceil((top + height) / this.rowHeight));
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, width, height);
    pen.clip();
    for (let place = first; place < last; place += 1) {
      const row = this.rows[place], y = place * this.rowHeight - top, deep = Math.max(2, this.rowHeight - (this.rowHeight > 6 ? 2 : 0));
      const isChosen = !this.byNode && row === this.selected;
      if (this.rowHeight >= NAMED_ROW) {
        pen.fillStyle = isChosen ? color("link") : color("ink");
        pen.textAlign = "left";
        pen.fillText(fitting(pen, this.name(row), left - 10), 4, y + this.rowHeight / 2);
      }
      const [begin, end] = this.range(row);
      let drawn = -1;
      for (let span = begin; span < end; span += 1) {
        const from = Math.max(left, left + (this.all.begin[span] - this.axis.begin) * scale);
        const to = Math.min(left + inner, left + (this.all.end[span] - this.axis.begin) * scale);
        if (to <= drawn) { continue; }
        const task = this.taskOf(span);
        if (task === this.selected) { pen.fillStyle = chosen; }
        else if (!this.byNode) { pen.fillStyle = shades[Math.max(0, Math.ceil(4 * this.all.nodes[span] / this.most) - 1)]; }
        else { pen.fillStyle = this.wanted[task] ? kinds[task % kinds.length] : pale; }
        drawn = Math.max(to, from + 1);
        pen.fillRect(from, y + (this.rowHeight - deep) / 2, drawn - from, deep);
      }
    }
    pen.restore();
    if (!this.rows.length) {
      pen.fillStyle = color("soft");
      pen.textAlign = "center";
      pen.fillText(`No ${this.byNode ? "node was" : "task"} held${this.byNode ? "" : " nodes"} in this part.`, left + inner / 2, height / 2);
    }
    const what = this.byNode ? several(this.rows.length, "node") : several(this.rows.length, "task");
    document.getElementById("gantt-count").textContent = `${what} in view`;
  }

  // The interval at a place, or the nearest one within three pixels.
  at(time, y) {
    const row = this.rows[Math.floor((y + this.place.scrollTop) / this.rowHeight)];
    if (row === undefined || y > this.place.clientHeight - 40) { return null; }
    const near = 3 * (this.axis.end - this.axis.begin) / this.layer.clientWidth, all = this.all;
    const span = firstAbove(all.end, time - near, all.first[row], all.first[row + 1]);
    return { row, span: span < all.first[row + 1] && all.begin[span] <= time + near ? span : null };
  }

  words(found) {
    const { row, span } = found;
    if (span === null) { return `${named(this.name(row))}: ${this.byNode ? "no task had it" : "it held no node"} then`; }
    const begin = this.all.begin[span], end = this.all.end[span], tasks = this.run.tasks;
    const held = this.byNode ? `node ${named(this.name(row))}` : several(this.all.nodes[span], "node");
    return `${named(tasks.name[this.taskOf(span)])} held ${held} from ${this.axis.words(begin)} to ${this.axis.words(end)} (${lasting(end - begin)})`;
  }

  point(time, x, y) {
    const found = time === null ? null : this.at(time, y);
    say(this.place, found ? this.words(found) : "", x, y);
  }

  click(event) {
    const box = this.layer.getBoundingClientRect(), width = this.layer.clientWidth, left = gutter(width);
    const time = this.axis.begin + (event.clientX - box.left - left) / (width - left - GAP) * (this.axis.end - this.axis.begin);
    const found = this.at(time, event.clientY - box.top);
    if (found && (found.span !== null || !this.byNode)) { this.chosen(found.span === null ? found.row : this.taskOf(found.span)); }
  }

  // Select a task, and scroll to its row.
  select(task) {
    this.selected = task;
    const place = this.byNode ? -1 : this.rows.indexOf(task);
    if (place >= 0) {
      const y = place * this.rowHeight, height = this.place.clientHeight - 40;
      if (y < this.place.scrollTop) { this.place.scrollTop = y; }
      if (y + this.rowHeight > this.place.scrollTop + height) { this.place.scrollTop = y + this.rowHeight - height; }
    }
    this.axis.changed();
  }

  // Arrows choose the row above or below, Enter shows all the time in which the chosen task held nodes.
  press(key) {
    if (key === "Enter" && this.selected !== null) {
      const from = this.spans.first[this.selected], to = this.spans.first[this.selected + 1];
      if (to > from) { this.axis.show(this.spans.begin[from], this.spans.end[to - 1]); }
      return true;
    }
    if (this.byNode || (key !== "ArrowUp" && key !== "ArrowDown") || !this.rows.length) { return false; }
    const place = this.rows.indexOf(this.selected) + (key === "ArrowDown" ? 1 : -1);
    const row = this.rows[Math.min(this.rows.length - 1, Math.max(0, place))];
    this.chosen(row);
    const [first, last] = this.range(row);
    say(this.place, `${named(this.name(row))} held nodes in ${several(last - first, "interval")} of this part`, 20,
      this.rows.indexOf(row) * this.rowHeight - this.place.scrollTop);
    return true;
  }
}
