// The time axis that all charts share: what part of the window is seen, how times are written, and how one moves.

const SHORTEST_S = 1, GAP = 12;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800,
  604800, 1209600, 2592000, 7776000, 31536000];

class TimeAxis {
  constructor(window_s, start, zone) {
    this.window = window_s;
    this.startMs = start === null ? null : Date.parse(start + "Z");
    this.begin = 0;
    this.end = window_s;
    this.mark = null;
    this.zone = start === null ? "start" : zone;
    this.forms = new Map();
    this.listeners = [];
    this.waiting = false;
  }

  // All that is drawn is drawn anew, once before the screen's next refresh.
  changed() {
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => this.draw());
    }
  }

  draw() {
    this.waiting = false;
    this.listeners.forEach((listener) => listener());
  }

  show(begin, end) {
    const width = Math.min(this.window, Math.max(Math.min(SHORTEST_S, this.window), end - begin));
    const middle = (begin + end) / 2;
    this.begin = Math.min(Math.max(0, middle - width / 2), this.window - width);
    this.end = this.begin + width;
    this.changed();
  }

  // "+", "-", "ArrowLeft", "ArrowRight" and "0"; whether the key means something.
  press(key) {
    const width = this.end - this.begin, quarter = width / 4;
    if (key === "+" || key === "=") { this.show(this.begin + quarter, this.end - quarter); }
    else if (key === "-") { this.show(this.begin - width / 2, this.end + width / 2); }
    else if (key === "ArrowLeft") { this.show(this.begin - quarter, this.end - quarter); }
    else if (key === "ArrowRight") { this.show(this.begin + quarter, this.end + quarter); }
    else if (key === "0") { this.show(0, this.window); }
    else { return false; }
    return true;
  }

  form(options) {
    const form = Object.assign(this.zone === "local" ? {} : { timeZone: this.zone }, options), key = JSON.stringify(form);
    if (!this.forms.has(key)) { this.forms.set(key, new Intl.DateTimeFormat("en-GB", form)); }
    return this.forms.get(key);
  }

  date(seconds, options) { return this.form(options).format(this.startMs + seconds * 1000); }

  // Seconds since 1970 that clocks of the zone show at a time, as if it were UTC.
  shown(seconds) {
    const at = new Date(this.startMs + seconds * 1000), form = this.form({ year: "numeric", month: "numeric", day: "numeric",
      hour: "numeric", minute: "numeric", second: "numeric", hourCycle: "h23" });
    const part = Object.fromEntries(form.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
    return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second) / 1000 + at.getUTCMilliseconds() / 1000;
  }

  // A time in words, with seconds where the part that is seen is short.
  words(seconds) {
    if (this.zone === "start") { return clock(seconds) + " h after the start"; }
    const fine = this.end - this.begin < 7200 ? { second: "2-digit" } : {};
    const form = { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hour12: false };
    return this.date(seconds, Object.assign(form, fine));
  }

  // Times of ticks with their labels, at least so many pixels apart on a width.
  ticks(width, apart) {
    const least = (this.end - this.begin) * apart / Math.max(width, apart);
    const step = STEPS_S.find((each) => each >= least) || Math.ceil(least / 31536000) * 31536000;
    const shift = this.zone === "start" ? 0 : this.shown(this.begin) - this.begin;
    const found = [];
    let before = "";
    for (let even = Math.ceil((this.begin + shift) / step) * step - shift; even <= this.end; even += step) {
      // Where clocks were changed meanwhile, midnight is at another time.
      const at = this.zone === "start" || step < 86400 ? even : 2 * even + shift - this.shown(even);
      if (this.zone === "start") { found.push([at, `${clock(at)} h`, ""]); continue; }
      const day = this.date(at, Object.assign({ day: "numeric", month: "short" }, step >= 7776000 ? { year: "numeric" } : {}));
      const time = this.date(at, Object.assign({ hour: "2-digit", minute: "2-digit", hour12: false },
        step < 60 ? { second: "2-digit" } : {}));
      found.push(step >= 86400 ? [at, day, ""] : [at, time, day === before ? "" : day]);
      before = day;
    }
    return found;
  }
}

function clock(seconds) {
  const sign = seconds < 0 ? "-" : "", whole = Math.round(Math.abs(seconds));
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const [h, m, s] = parts.map((part) => String(part).padStart(2, "0"));
  return `${sign}${Number(h)}:${m}` + (s === "00" ? "" : `:${s}`);
}

function lasting(seconds) {
  const scales = [[172800, 86400, "d"], [3600, 3600, "h"], [60, 60, "min"], [1, 1, "s"], [1e-3, 1e-3, "ms"], [0, 1e-6, "µs"]];
  const [, size, unit] = scales.find(([least]) => seconds >= least) || scales[scales.length - 1];
  return `${Number((seconds / size).toPrecision(3))} ${unit}`;
}

function counted(value) {
  return value.toLocaleString("en-US", Math.abs(value) < 100 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 });
}

// A name in a sentence, whose direction is its own.
function named(name) { return `\u2068${name}\u2069`; }

function several(value, one) {
  return `${counted(value)} ${one}${value === 1 ? "" : "s"}`;
}

// A canvas of a size in CSS pixels, sharp on any screen, and the colours of the page's theme.
function painter(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = (width < 600 ? 11 : 12) + "px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.direction = "ltr";
  pen.lineWidth = 1;
  return [pen, (name) => style.getPropertyValue("--" + name).trim()];
}

// As much of a text as fits.
function fitting(pen, text, width) {
  if (pen.measureText(text).width <= width) { return text; }
  let low = 0, high = Math.min(text.length, 200);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, middle) + "…").width <= width) { low = middle; } else { high = middle - 1; }
  }
  return text.slice(0, low) + "…";
}

// Width of what stands left of every chart, so that one time has one place on all of them.
function gutter(width) { return width < 600 ? 64 : 132; }

function drawTimes(axis, pen, color, left, width, top, bottom) {
  const scale = width / (axis.end - axis.begin);
  pen.textAlign = "center";
  axis.ticks(width, 76).forEach(([at, label, day]) => {
    const x = Math.round(left + (at - axis.begin) * scale) + 0.5;
    pen.strokeStyle = color("rule");
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, bottom + 4);
    pen.stroke();
    pen.fillStyle = color("soft");
    [label, day].forEach((text, line) => {
      pen.fillText(text, Math.min(x, left + width + GAP - 2 - pen.measureText(text).width / 2), bottom + 12 + 14 * line);
    });
  });
  if (axis.mark !== null && axis.mark >= axis.begin && axis.mark <= axis.end) {
    const x = left + (axis.mark - axis.begin) * scale;
    pen.strokeStyle = color("red");
    pen.beginPath();
    pen.moveTo(x, top);
    pen.lineTo(x, bottom);
    pen.stroke();
  }
}

// What a chart does with keys and the pointer: keys and dragging move all charts, pointing calls `hover`.
function interactive(axis, place, layer, hover, key) {
  let from = null;
  const shade = document.createElement("div");
  shade.className = "shade";
  shade.hidden = true;
  layer.appendChild(shade);
  const timeAt = (x) => {
    const width = place.clientWidth, left = gutter(width);
    return axis.begin + Math.min(1, Math.max(0, (x - left) / (width - left - GAP))) * (axis.end - axis.begin);
  };
  const within = (event) => {
    const box = layer.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== place) { return; }
    if ((key && key(event.key)) || axis.press(event.key)) { event.preventDefault(); }
  });
  layer.addEventListener("pointerdown", (event) => {
    if (event.button === 0) { from = within(event)[0]; }
  });
  layer.addEventListener("pointermove", (event) => {
    const [x, y] = within(event);
    if (from !== null && event.buttons & 1 && Math.abs(x - from) > 4) {
      shade.hidden = false;
      shade.style.left = `${Math.min(x, from)}px`;
      shade.style.width = `${Math.abs(x - from)}px`;
    }
    hover(timeAt(x), x, y, event);
  });
  layer.addEventListener("pointerleave", () => hover(null));
  const ended = (event) => {
    if (event.type === "pointerup" && from !== null && !shade.hidden) {
      const x = within(event)[0];
      axis.show(timeAt(Math.min(x, from)), timeAt(Math.max(x, from)));
    }
    from = null;
    setTimeout(() => { shade.hidden = true; });
  };
  ["pointerup", "pointercancel"].forEach((type) => window.addEventListener(type, ended));
  layer.addEventListener("dblclick", () => axis.press("0"));
  return { dragging: () => !shade.hidden };
}

// A text beside the pointer, or above it where there is no room below; screen readers speak it.
function say(place, text, x, y) {
  const tip = place.querySelector(".tip");
  tip.hidden = !text;
  if (!text) { return; }
  tip.textContent = text;
  const width = tip.offsetWidth, right = place.clientWidth - 4;
  tip.style.left = `${Math.max(4, Math.min(x + 14, right - width))}px`;
  const room = place.clientHeight - tip.offsetHeight;
  tip.style.top = `${y + 18 <= room ? y + 18 : Math.max(0, Math.min(room, y - 8 - tip.offsetHeight))}px`;
}
