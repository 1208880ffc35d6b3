// A chart of step functions over the shared time, with a legend whose entries hide and show their lines.

function nice(most) {
  const size = 10 ** Math.floor(Math.log10(most / 4));
  return [1, 2, 5, 10].map((each) => each * size).find((each) => most / each <= 4);
}

class LineView {
  constructor(axis, chart, place) {
    Object.assign(this, { axis, chart, place, hidden: new Set() });
    this.canvas = place.querySelector("canvas");
    this.legend();
    interactive(axis, place, place.querySelector(".layer"), (time, x, y) => this.point(time, x, y));
    axis.listeners.push(() => this.draw());
  }

  legend() {
    const list = document.createElement("div");
    list.className = "legend";
    this.chart.lines.forEach((line, number) => {
      const button = document.createElement("button"), mark = document.createElement("span");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      mark.className = "mark";
      mark.style.borderTop = `3px ${line.dash.length ? "dashed" : "solid"} var(--${line.color})`;
      button.append(mark, line.name);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(number)) { this.hidden.add(number); }
        button.setAttribute("aria-pressed", String(!this.hidden.has(number)));
        this.draw();
      });
      list.appendChild(button);
    });
    this.place.after(list);
  }

  seen() { return this.chart.lines.filter((_, number) => !this.hidden.has(number)); }

  // Rows of a line that are seen, one before and one after included.
  rows(line) {
    const first = firstAbove(line.time, this.axis.begin, 0, line.time.length) - 1;
    const last = firstAbove(line.time, this.axis.end, 0, line.time.length);
    return [Math.max(0, first), Math.min(last, line.time.length - 1)];
  }

  draw() {
    const width = this.place.clientWidth, height = this.place.clientHeight, axis = this.axis;
    const [pen, color] = painter(this.canvas, width, height);
    const left = gutter(width), top = 10, bottom = height - 36, inner = width - left - GAP;
    let most = 0;
    this.seen().forEach((line) => {
      const [first, last] = this.rows(line);
      for (let row = first; row <= last; row += 1) { most = Math.max(most, line.value[row] || 0); }
    });
    const step = nice(most || 1), ceiling = Math.max(most * 1.04, step);
    const yOf = (value) => bottom - value / ceiling * (bottom - top);
    drawTimes(axis, pen, color, left, inner, top, bottom);
    pen.textAlign = "right";
    for (let value = 0; value <= ceiling; value += step) {
      const y = Math.round(yOf(value)) + 0.5;
      pen.strokeStyle = color("rule");
      pen.beginPath();
      pen.moveTo(left, y);
      pen.lineTo(left + inner, y);
      pen.stroke();
      pen.fillStyle = color("soft");
      pen.fillText(counted(value), left - 6, y);
    }
    pen.textAlign = "left";
    pen.fillText(this.chart.unit, 4, top + 6);
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, inner, bottom + 1);
    pen.clip();
    this.seen().forEach((line) => this.trace(pen, color, line, left, inner, yOf));
    pen.restore();
  }

  trace(pen, color, line, left, inner, yOf) {
    const axis = this.axis, scale = inner / (axis.end - axis.begin), [first, last] = this.rows(line);
    const path = new Path2D();
    let begun = null, y = NaN, x = NaN;
    for (let row = first; row <= last; row += 1) {
      x = left + (line.time[row] - axis.begin) * scale;
      if (Number.isNaN(line.value[row])) {
        if (begun !== null) { path.lineTo(x, y); }
        begun = null;
        continue;
      }
      if (begun === null) { path.moveTo(x, yOf(line.value[row])); begun = x; } else { path.lineTo(x, y); }
      y = yOf(line.value[row]);
      path.lineTo(x, y);
    }
    if (line.fill && begun !== null) {
      const area = new Path2D(path);
      area.lineTo(x, yOf(0));
      area.lineTo(begun, yOf(0));
      pen.fillStyle = color("shade");
      pen.fill(area);
    }
    pen.strokeStyle = color(line.color);
    pen.lineWidth = line.fill ? 1 : 1.5;
    pen.setLineDash(line.dash);
    pen.stroke(path);
    pen.setLineDash([]);
  }

  point(time, x, y) {
    if (time === null) { say(this.place, ""); return; }
    const told = this.seen().map((line) => {
      const value = line.value[firstAbove(line.time, time, 0, line.time.length) - 1];
      return `${value === undefined || Number.isNaN(value) ? "no" : counted(value)} ${named(line.name)}`;
    });
    say(this.place, `${this.axis.words(time)}: ${told.join(", ")} (${this.chart.unit})`, x, y);
  }
}
