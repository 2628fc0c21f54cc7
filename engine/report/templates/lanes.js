// All tiles over the step as a zoomable picture: the phase of each tile at each cycle, and names of operations above.
const LEFT = 46, TOP = 24, BOTTOM = 24, LEAST_NAME = 30, LEAST_TILE = 5;

class Lanes {
  constructor(choose) {
    this.canvas = $("#lanes");
    this.context = this.canvas.getContext("2d");
    this.choose = choose;
    this.pointers = new Map();
    this.found = [];
    this.listen();
  }

  // The step of an IPU: where each compute set begins, and its tiles.
  load(shown) {
    let at = 0;
    this.steps = stepsOf(shown).map((row, step) => {
      const begin = at, work = shown.work[step];
      at += row.cycles;
      return { row, begin, end: at, ranges: rangesOf(work.place), received: work.received_bytes };
    });
    this.cycles = Math.max(1, at);
    this.tiles = shown.tiles.length;
    this.find($("#find").value);
    this.all();
  }

  all() {
    this.view = { x0: 0, x1: this.cycles, y0: 0, y1: this.tiles };
    this.paint();
  }

  paint() {
    if (!this.waiting) this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  // Drawing ------------------------------------------------------------------------------------------------------------
  measure() {
    const { clientWidth: width, clientHeight: height } = this.canvas, ratio = devicePixelRatio || 1;
    Object.assign(this, { width, height, across: width - LEFT, down: height - TOP - BOTTOM });
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  x(cycle) { return LEFT + ((cycle - this.view.x0) / (this.view.x1 - this.view.x0)) * this.across; }
  y(tile) { return TOP + ((tile - this.view.y0) / (this.view.y1 - this.view.y0)) * this.down; }

  draw() {
    if (!this.canvas.clientWidth || !this.steps) return;
    this.measure();
    const style = getComputedStyle(document.documentElement), paint = this.context;
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    paint.clearRect(0, 0, this.width, this.height);
    paint.font = "11px Inter, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif";
    paint.textBaseline = "middle";
    paint.save();
    paint.beginPath();
    paint.rect(LEFT, 0, this.across, TOP + this.down);
    paint.clip();
    const first = this.at(this.view.x0), seen = [];
    for (let n = first; n < this.steps.length && this.steps[n].begin < this.view.x1; n++) seen.push(n);
    this.raster(seen, ["sync", "exchange", "compute", "idle"].map((phase) => rgb(colour(phase))));
    if (this.found.length) this.dim(seen, colour("paper"));
    if (this.down / (this.view.y1 - this.view.y0) >= LEAST_TILE) this.grid(colour("paper"));
    this.names(seen, colour);
    paint.restore();
    this.axes(colour("muted"));
  }

  // The mean colour of each pixel: supersteps of a long step are narrower than one.
  raster(seen, colours) {
    const ratio = devicePixelRatio || 1, wide = Math.round(this.across * ratio), high = Math.round(this.down * ratio);
    const image = this.context.createImageData(wide, high), { x0, x1, y0, y1 } = this.view;
    const x = (cycle) => ((cycle - x0) / (x1 - x0)) * wide, y = (tile) => Math.min(high, Math.max(0, ((tile - y0) / (y1 - y0)) * high));
    const columns = Array.from({ length: wide }, () => []);
    const put = (from, to, phase, ranges) => {
      const left = Math.max(0, x(from)), right = Math.min(wide, x(to));
      for (let at = Math.floor(left); at < right; at++) columns[at].push([phase, Math.min(right, at + 1) - Math.max(left, at), ranges]);
    };
    for (const n of seen) {
      const { row, begin, ranges } = this.steps[n], synced = begin + row.sync, exchanged = synced + row.exchange;
      const rows = ranges.map(([top, bottom]) => [y(top), y(bottom)]);
      put(begin, synced, 0, [[0, high]]);
      put(synced, exchanged, 1, rows);
      put(exchanged, exchanged + row.compute, 2, rows);
    }
    columns.forEach((parts, at) => mix(image, at, parts, colours));
    this.context.putImageData(image, Math.round(LEFT * ratio), Math.round(TOP * ratio));
  }

  dim(seen, paper) {
    const chosen = new Set(this.found), paint = this.context;
    paint.fillStyle = paper;
    paint.globalAlpha = 0.78;
    for (const n of seen) {
      const { begin, end } = this.steps[n];
      if (!chosen.has(n)) paint.fillRect(this.x(begin), TOP, this.x(end) - this.x(begin), this.down);
    }
    paint.globalAlpha = 1;
  }

  grid(paper) {
    this.context.fillStyle = paper;
    for (let tile = Math.ceil(this.view.y0); tile <= this.view.y1; tile++) this.context.fillRect(LEFT, this.y(tile) - 0.5, this.across, 1);
  }

  // Names of neighbours that have the same are one.
  names(seen, colour) {
    const paint = this.context, runs = [];
    for (const n of seen) {
      const { row, begin, end } = this.steps[n], last = runs[runs.length - 1];
      if (last && last.name === row.name) last.end = end;
      else runs.push({ name: row.name, begin, end });
    }
    for (const { name, begin, end } of runs) {
      const left = Math.max(LEFT, this.x(begin)), wide = Math.min(this.width, this.x(end)) - left;
      if (wide < LEAST_NAME) continue;
      paint.fillStyle = colour("grid");
      paint.fillRect(left + 0.5, 2, wide - 1, TOP - 5);
      paint.fillStyle = colour("ink");
      paint.fillText(this.cut(name, wide - 8), left + 4, (TOP - 3) / 2);
    }
  }

  cut(name, wide) {
    const paint = this.context;
    if (paint.measureText(name).width <= wide) return name;
    let letters = Math.floor((name.length * wide) / paint.measureText(name).width);
    while (letters > 1 && paint.measureText(`${name.slice(0, letters)}…`).width > wide) letters--;
    return letters > 1 ? `${name.slice(0, letters)}…` : "";
  }

  axes(muted) {
    const paint = this.context, { x0, x1, y0, y1 } = this.view;
    paint.fillStyle = muted;
    for (const cycle of ticks(x0, x1, this.across / 90)) {
      const at = this.x(cycle), text = short(cycle);
      paint.fillRect(at, TOP + this.down, 1, 4);
      paint.textAlign = at > this.width - 30 ? "right" : "center";
      paint.fillText(text, at, TOP + this.down + 14);
    }
    paint.textAlign = "right";
    for (const tile of ticks(y0, y1 - 1, this.down / 40)) {
      if (Number.isInteger(tile)) paint.fillText(number.format(tile), LEFT - 6, this.y(tile + 0.5));
    }
    paint.textAlign = "left";
  }

  // Places -------------------------------------------------------------------------------------------------------------
  // The compute set that runs at a cycle: the last one that has begun.
  at(cycle) {
    let low = 0, high = this.steps.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.steps[middle].begin <= cycle) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // Compute set, tile and phase at a place of the canvas; null beside the lanes.
  under(x, y) {
    const { x0, x1, y0, y1 } = this.view;
    if (x < LEFT || x >= LEFT + this.across || y < TOP || y >= TOP + this.down || !this.steps.length) return null;
    const cycle = x0 + ((x - LEFT) / this.across) * (x1 - x0), tile = Math.floor(y0 + ((y - TOP) / this.down) * (y1 - y0));
    if (cycle >= this.cycles || tile >= this.tiles) return null;
    const step = this.at(cycle), { row, begin, ranges, received } = this.steps[step], works = ranges.some(([a, b]) => a <= tile && tile < b);
    const phase = cycle < begin + row.sync ? "sync" : !works ? "idle" : cycle < begin + row.sync + row.exchange ? "exchange" : "compute";
    return { step, tile, phase, row, received: works ? received : 0 };
  }

  // Moving and zooming -------------------------------------------------------------------------------------------------
  // Shows the cycles and tiles from x0 and y0 on, within the step.
  move(x0, y0, cycles = this.view.x1 - this.view.x0, tiles = this.view.y1 - this.view.y0) {
    cycles = Math.min(this.cycles, Math.max(Math.min(20, this.cycles), cycles));
    tiles = Math.min(this.tiles, Math.max(Math.min(4, this.tiles), tiles));
    x0 = Math.min(this.cycles - cycles, Math.max(0, x0));
    y0 = Math.min(this.tiles - tiles, Math.max(0, y0));
    this.view = { x0, x1: x0 + cycles, y0, y1: y0 + tiles };
    this.paint();
  }

  // Zooms by factors around shares of the picture.
  zoom(across, down, x = 0.5, y = 0.5) {
    const { x0, x1, y0, y1 } = this.view, cycles = (x1 - x0) / across, tiles = (y1 - y0) / down;
    this.move(x0 + (x1 - x0 - cycles) * x, y0 + (y1 - y0 - tiles) * y, cycles, tiles);
  }

  drag(x, y) {
    const { x0, x1, y0, y1 } = this.view;
    this.move(x0 - (x / this.across) * (x1 - x0), y0 - (y / this.down) * (y1 - y0));
  }

  // Shows a compute set in the middle, a third as wide as the picture.
  focus(step) {
    if (!this.steps[step]) return;
    const { begin, end } = this.steps[step], cycles = 3 * Math.max(1, end - begin);
    this.move((begin + end - cycles) / 2, this.view.y0, cycles);
  }

  find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), numbers = [...this.steps.keys()];
    const has = ({ row }) => words.every((word) => `${row.name} ${row.layer} ${row.source || ""}`.toLowerCase().includes(word));
    this.found = words.length ? numbers.filter((n) => has(this.steps[n])) : [];
    this.chosen = -1;
    const cycles = sum(this.found.map((n) => this.steps[n].row.cycles));
    $("#found").textContent = words.length ? `${number.format(this.found.length)} compute sets, ${number.format(cycles)} cycles` : "";
    this.paint();
  }

  next() {
    if (!this.found.length) return;
    this.chosen = (this.chosen + 1) % this.found.length;
    const step = this.found[this.chosen], { row } = this.steps[step];
    this.focus(step);
    $("#found").textContent = `${number.format(this.chosen + 1)} of ${number.format(this.found.length)}: ${row.name}, ${number.format(row.cycles)} cycles`;
  }

  listen() {
    const { canvas } = this;
    const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, place(event));
      this.moved = this.pointers.size > 1;
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event), before = this.pointers.get(event.pointerId);
      if (!before) { this.tell(event, x, y); return; }
      const other = [...this.pointers].find(([id]) => id !== event.pointerId);
      if (other) {
        const [, [ox, oy]] = other, factor = Math.hypot(x - ox, y - oy) / Math.max(1, Math.hypot(before[0] - ox, before[1] - oy));
        this.zoom(factor, factor, (ox - LEFT) / this.across, (oy - TOP) / this.down);
      } else if (this.moved || Math.hypot(x - before[0], y - before[1]) > 3) {
        this.moved = true;
        this.drag(x - before[0], y - before[1]);
      } else return;
      this.pointers.set(event.pointerId, [x, y]);
      tellAt(event, null);
    });
    const up = (event) => {
      const here = this.pointers.delete(event.pointerId) && event.type === "pointerup" && !this.moved && this.under(...place(event));
      if (here) this.choose(here.tile);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", (event) => tellAt(event, null));
    canvas.addEventListener("wheel", (event) => {
      if (!event.shiftKey && !event.altKey) return;
      event.preventDefault();
      // Shift turns the wheel sideways in some browsers.
      const factor = 1.0015 ** -(event.deltaY || event.deltaX), [x, y] = place(event);
      this.zoom(event.shiftKey ? factor : 1, event.altKey ? factor : 1, (x - LEFT) / this.across, (y - TOP) / this.down);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const button of $$("[data-zoom]")) {
      const [across, down] = button.dataset.zoom.split(" ").map(Number);
      button.addEventListener("click", () => (across ? this.zoom(across, down) : this.all()));
    }
    $("#find").addEventListener("input", ({ target }) => this.find(target.value));
    $("#find").addEventListener("keydown", (event) => { if (event.key === "Enter") this.next(); });
    $("#next").addEventListener("click", () => this.next());
    addEventListener("resize", () => this.paint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
  }

  key(event) {
    const { across, down } = this, moves = { ArrowLeft: [across / 8, 0], ArrowRight: [-across / 8, 0], ArrowUp: [0, down / 8], ArrowDown: [0, -down / 8] };
    if (moves[event.key]) this.drag(...moves[event.key]);
    else if (event.key === "+") this.zoom(1.5, 1);
    else if (event.key === "-") this.zoom(1 / 1.5, 1);
    else if (event.key === "0") this.all();
    else return;
    event.preventDefault();
  }

  tell(event, x, y) {
    const here = this.under(x, y);
    tellAt(event, here && {
      tile: number.format(here.tile), phase: here.phase, "compute set": number.format(here.step), operation: here.row.name,
      ...(here.phase === "idle" || here.phase === "sync" ? {} : { cycles: number.format(here.row[here.phase]) }),
      ...(here.phase === "exchange" ? { "bytes received": number.format(here.received) } : {}),
    });
  }
}

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// Colours a column of an image: each part has a phase, a share of the column's width, and ranges of rows.
function mix(image, at, parts, colours) {
  const { width, height, data } = image, phases = [0, 1, 2].map(() => new Float32Array(height + 2));
  // Differences of a row from the one above, with fractions of rows at both ends.
  const edge = (part, place, share) => {
    const row = Math.floor(place), rest = place - row;
    part[row] += share * (1 - rest);
    part[row + 1] += share * rest;
  };
  for (const [phase, share, ranges] of parts) {
    for (const [top, bottom] of ranges) { edge(phases[phase], top, share); edge(phases[phase], bottom, -share); }
  }
  const shares = [0, 0, 0];
  for (let row = 0, to = 4 * at; row < height; row++, to += 4 * width) {
    for (let phase = 0; phase < 3; phase++) shares[phase] += phases[phase][row];
    const idle = Math.max(0, 1 - shares[0] - shares[1] - shares[2]);
    for (let part = 0; part < 3; part++) {
      data[to + part] = shares[0] * colours[0][part] + shares[1] * colours[1][part] + shares[2] * colours[2][part] + idle * colours[3][part];
    }
    data[to + 3] = 255;
  }
}

// Round numbers from low to high, about as many as asked for.
function ticks(low, high, many) {
  const wanted = Math.max(1e-9, (high - low) / Math.max(1, many)), power = 10 ** Math.floor(Math.log10(wanted));
  const step = Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= wanted)), found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return found;
}
