// Charts: all have the same time axis. A request is a brick; requests of the same time are piled up.

let ink = {};
function readInk() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["sheet", "line", "ink", "soft", "pass", "pass-fill", "refuse", "refuse-fill", "refuse-ground", "wait-fill", "level", "focus"]) {
    ink[name] = style.getPropertyValue("--" + name).trim();
  }
  ink.font = "11px " + getComputedStyle(document.body).fontFamily;
}

// The sizes of canvases are kept: to ask for one has the browser lay out the page, once a frame.
const known = new WeakMap();
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) known.set(target, contentRect);
  schedule("size", drawAll);
});
function sizeOf(canvas) {
  if (!known.has(canvas)) known.set(canvas, canvas.getBoundingClientRect());
  return known.get(canvas);
}

// pen makes a canvas as sharp as the screen and gives what draws on it, in pixels of CSS.
function pen(canvas) {
  const { width, height } = sizeOf(canvas), ratio = devicePixelRatio || 1;
  const c = canvas.getContext("2d");
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    c.font = ink.font; // only here: to set it has the browser look up styles
  }
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  return { c, width, height };
}

// bins says in which of the axis's parts the requests on it are, and how high the piles get.
function bins(times, axis) {
  const first = upTo(times, axis.from), last = upTo(times, axis.to);
  const of = new Int32Array(last - first), heights = new Int32Array(cellCount);
  for (let i = first; i < last; i++) {
    const bin = Math.min(cellCount - 1, Math.floor((times[i] - axis.from + 0.5) / (axis.to - axis.from) * cellCount));
    of[i - first] = bin;
    heights[bin]++;
  }
  return { first, of, heights, most: Math.max(...heights) };
}
// upTo is how many of the times are before one.
function upTo(times, at) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < at) low = middle + 1; else high = middle;
  }
  return low;
}

const passes = 0, waits = 1, refused = 2;

// bricks piles up a brick for each request, on a floor. If bricks would be too thin to see, all bricks of
// one kind are one piece.
function bricks({ of }, kinds, { width, floor, pitch }) {
  const column = width / cellCount, gap = column > 5 ? 1.5 : column > 3 ? 1 : 0, split = pitch >= 2.5;
  const paths = [new Path2D(), new Path2D(), new Path2D()];
  for (let i = 0; i < of.length;) {
    const x = of[i] * column + gap / 2;
    for (let level = 0, first = i; i < of.length && of[i] === of[first];) {
      const kind = kinds[i], path = paths[kind];
      let n = 1;
      if (!split) while (of[i + n] === of[first] && kinds[i + n] === kind) n++;
      level += n;
      i += n;
      const y = floor - level * pitch;
      if (!split) path.rect(x, y, column - gap, n * pitch);
      else if (kind === refused) path.rect(x + 0.5, y + 0.5, column - gap - 1, Math.max(0.5, pitch - 2));
      else path.rect(x, y, column - gap, pitch - 1);
    }
  }
  return { paths, split };
}

// kindsOf returns the result of each request on the axis.
function kindsOf(lane, { first, of }) {
  const kinds = new Uint8Array(of.length);
  for (let i = 0; i < kinds.length; i++) {
    const wait = lane.waits[first + i];
    kinds[i] = wait < 0 ? refused : wait > 0 ? waits : passes;
  }
  return kinds;
}

function drawLane(canvas, lane, traffic, shape) {
  const { c, width, height } = pen(canvas), axis = traffic.axis;
  const scale = (at) => (at - axis.from) / (axis.to - axis.from) * width;
  const floor = Math.round(height * 0.43), top = floor + 20, bottom = height - 1, pitch = Math.min(8, (floor - 4) / Math.max(shape.most, 6));

  // Where it has no room, behind all else.
  const { used, capacity } = lane, full = capacity - traffic.units;
  c.fillStyle = ink["refuse-ground"];
  for (let i = 0; i < used.length; i++) {
    if (used[i] <= full) continue;
    let end = i;
    while (end + 1 < used.length && used[end + 1] > full) end++;
    c.fillRect(i / (used.length - 1) * width, 0, Math.max(1, (end - i) / (used.length - 1) * width), height);
    i = end;
  }

  // Windows begin and end when the clock says so.
  if (lane.keeps.startsWith("window") && (axis.to - axis.from) / lane.per < width / 8) {
    c.strokeStyle = ink.soft;
    c.setLineDash([2, 3]);
    c.beginPath();
    for (let at = Math.ceil(axis.from / lane.per) * lane.per; at <= axis.to; at += lane.per) {
      const x = Math.min(width - 0.5, Math.max(0.5, Math.round(scale(at)) + 0.5));
      c.moveTo(x, 0);
      c.lineTo(x, height);
    }
    c.stroke();
    c.setLineDash([]);
    if (lane.keeps === "window") labelBoundary(c, lane, axis, shape, scale, width, (floor - 18) / pitch);
  }

  const { paths, split } = bricks(shape, kindsOf(lane, shape), { width, floor, pitch });
  c.fillStyle = ink.pass;
  c.fill(paths[passes]);
  c.fillStyle = ink["wait-fill"];
  c.fill(paths[waits]);
  c.fillStyle = ink["refuse-fill"];
  if (split) {
    c.strokeStyle = ink.refuse;
    c.lineWidth = 1;
    c.stroke(paths[refused]);
  } else {
    c.fill(paths[refused]);
  }
  c.fillStyle = ink.line;
  c.fillRect(0, floor, width, 1);

  // When those leave that had to wait.
  if (lane.keeps === "queue") {
    c.fillStyle = ink.pass;
    for (let i = 0; i < lane.waits.length; i++) {
      if (lane.waits[i] < 0) continue;
      const x = scale(traffic.arrivals[i] + lane.waits[i]);
      if (x >= 0 && x <= width) c.fillRect(x - 0.5, floor + 2, 1.5, 5);
    }
  }

  drawMost(c, lane, scale, floor, width);

  // What it remembers.
  const tall = bottom - top, y = (n) => bottom - n / capacity * tall, tokens = lane.keeps === "bucket";
  const line = new Path2D(), area = new Path2D();
  area.moveTo(0, bottom);
  let before = -1;
  used.forEach((n, i) => {
    if (n === before && i < used.length - 1) return;
    const x = i / (used.length - 1) * width, at = y(tokens ? capacity - n : n);
    if (i) {
      const held = y(tokens ? capacity - before : before);
      line.lineTo(x, held);
      area.lineTo(x, held);
    } else {
      line.moveTo(x, at);
    }
    line.lineTo(x, at);
    area.lineTo(x, at);
    before = n;
  });
  area.lineTo(width, bottom);
  c.fillStyle = ink.level;
  c.fill(area);
  c.strokeStyle = ink.pass;
  c.lineWidth = 1.2;
  c.stroke(line);
  c.fillStyle = ink.soft;
  c.fillRect(0, top - 0.5, width, 0.5);
  label(c, whole.format(capacity) + " " + panels[lane.keeps], 4, top + 11, "left");
}

// labelBoundary names the first boundary with room beside it, above piles of that height.
function labelBoundary(c, lane, axis, shape, scale, width, height) {
  const wide = c.measureText("boundary").width + 8;
  for (let at = (Math.floor(axis.from / lane.per) + 1) * lane.per; scale(at) + wide < width; at += lane.per) {
    const bin = (x) => Math.floor(x / width * cellCount);
    if (shape.heights.subarray(bin(scale(at)), bin(scale(at) + wide) + 1).some((n) => n > height)) continue;
    c.fillStyle = ink.soft;
    return label(c, "boundary", scale(at) + 4, 11, "left");
  }
}

// drawMost is a bracket around the period in which the most went on.
function drawMost(c, lane, scale, floor, width) {
  if (lane.most === 0) return;
  const left = scale(lane.from), right = scale(lane.from + lane.per), over = lane.most > lane.events;
  if (right < 0 || left > width) return;
  const x1 = Math.max(1, left), x2 = Math.min(width - 1, right), y = floor + 10;
  c.strokeStyle = c.fillStyle = over ? ink.refuse : ink.soft;
  c.lineWidth = over ? 2 : 1;
  c.beginPath();
  if (left >= 0) { c.moveTo(x1, y - 3); c.lineTo(x1, y + 3); }
  c.moveTo(x1, y);
  c.lineTo(x2, y);
  if (right <= width) { c.moveTo(x2, y - 3); c.lineTo(x2, y + 3); }
  c.stroke();
  const text = `${whole.format(lane.most)} in ${span(lane.per)}`;
  const room = c.measureText(text).width + 10, middle = Math.min(width - room / 2, Math.max(room / 2, (x1 + x2) / 2));
  c.fillStyle = ink.sheet;
  c.fillRect(middle - room / 2, y - 6, room, 13);
  c.fillStyle = over ? ink.refuse : ink.soft;
  label(c, text, middle, y + 4, "center", over);
}

function label(c, text, x, y, align, bold) {
  c.textAlign = align;
  c.fillText(text, x, y);
  if (bold) c.fillText(text, x + 0.4, y);
}

// drawTraffic draws what comes, with a grid to draw on, and the cell that the keyboard is at.
function drawTraffic(canvas, traffic, shape, most, cell) {
  const { c, width, height } = pen(canvas), floor = height - 1, column = width / cellCount;
  const pitch = (floor - 6) / most;
  c.strokeStyle = ink.line;
  c.lineWidth = 1;
  c.beginPath();
  for (let i = 0; i <= 4; i++) {
    const x = Math.min(width - 0.5, Math.round(i * width / 4) + 0.5);
    c.moveTo(x, 0);
    c.lineTo(x, height);
  }
  c.stroke();
  const { paths } = bricks(shape, new Uint8Array(shape.of.length), { width, floor, pitch });
  c.fillStyle = ink.ink;
  c.fill(paths[passes]);
  c.fillStyle = ink.line;
  c.fillRect(0, floor, width, 1);
  if (cell !== null) {
    c.strokeStyle = ink.focus;
    c.lineWidth = 2;
    c.strokeRect(cell * column, 1, column, floor - 1);
  }
}
