// Gauges: pictures of a lane's present state.

const gauges = {
  // A bucket fills from above, one token at a time. The next token is falling.
  bucket(c, w, h, lane, v) {
    const left = v.remaining, interval = lane.per / lane.events;
    const x = w / 2 - 38, y = 16, wide = 76, tall = h - 20;
    c.strokeStyle = ink.soft;
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x + 5, y + tall - 6);
    c.quadraticCurveTo(x + 6, y + tall, x + 12, y + tall);
    c.lineTo(x + wide - 12, y + tall);
    c.quadraticCurveTo(x + wide - 6, y + tall, x + wide - 5, y + tall - 6);
    c.lineTo(x + wide, y);
    c.stroke();
    c.fillStyle = ink.pass;
    const columns = Math.min(8, Math.max(4, Math.ceil(lane.capacity / 2))), rows = Math.ceil(lane.capacity / columns);
    if (rows <= 5) {
      const size = Math.min(5.5, (wide - 24) / columns / 2 - 0.5, (tall - 6) / rows / 2 - 0.5);
      for (let i = 0; i < left; i++) dot(c, x + 12 + (i % columns + 0.5) * (wide - 24) / columns, y + tall - 4 - size - Math.floor(i / columns) * (2 * size + 1), size);
    } else {
      const level = (tall - 3) * left / lane.capacity;
      c.fillStyle = ink["pass-fill"];
      c.fillRect(x + 6, y + tall - 2 - level, wide - 12, level);
    }
    if (left < lane.capacity) {
      const ready = 1 - Math.min(1, v.next / interval);
      c.fillStyle = ink.pass;
      dot(c, w / 2, 4 + 8 * ready, 1 + 3 * ready);
    }
  },

  // A queue moves to the right. Its first request is leaving.
  queue(c, w, h, lane, v) {
    const used = lane.capacity - v.remaining, y = h / 2, interval = lane.per / lane.events;
    c.strokeStyle = ink.soft;
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(6, y - 13); c.lineTo(w - 20, y - 13); c.lineTo(w - 12, y - 6); c.lineTo(w - 4, y - 6);
    c.moveTo(6, y + 13); c.lineTo(w - 20, y + 13); c.lineTo(w - 12, y + 6); c.lineTo(w - 4, y + 6);
    c.stroke();
    const room = w - 30, pitch = Math.min(11, room / lane.capacity);
    const gone = used > 0 ? 1 - Math.min(1, v.next / interval) : 0;
    if (pitch >= 4) {
      for (let i = 0; i < used; i++) {
        c.fillStyle = i ? ink["wait-fill"] : ink.pass;
        dot(c, i ? w - 24 - (i - gone) * pitch : w - 24 + gone * 22, y, Math.min(4.5, pitch / 2 - 0.5));
      }
    } else {
      c.fillStyle = ink["wait-fill"];
      const wide = room * used / lane.capacity;
      c.fillRect(w - 20 - wide, y - 10, wide, 20);
    }
  },

  // A window is a glass that is full at the limit, and a clock.
  window(c, w, h, lane, v, now) {
    glass(c, 14, h, 42, [[v.current, ink.pass]], lane.capacity);
    dial(c, w - 38, h / 2 - 4, 24, now % lane.per / lane.per);
    c.fillStyle = ink.soft;
    label(c, span(lane.per - now % lane.per), w - 38, h - 2, "center");
  },

  // Two windows: the part of the previous one that still counts stands on the present one.
  windows(c, w, h, lane, v, now) {
    const used = lane.capacity - v.remaining, share = Math.max(0, used - v.current);
    const wide = w / 4, x = (i) => 4 + i * (w - 8 - wide) / 2;
    glass(c, x(0), h - 12, wide, [[share, ink["pass-fill"]], [v.previous - share, ink.line]], lane.capacity);
    glass(c, x(1), h - 12, wide, [[v.current, ink.pass]], lane.capacity);
    glass(c, x(2), h - 12, wide, [[v.current, ink.pass], [share, ink["pass-fill"]]], lane.capacity);
    c.fillStyle = ink.soft;
    ["before", "now", "counts"].forEach((text, i) => label(c, text, x(i) + wide / 2, h - 1, "center"));
    ["+", "="].forEach((text, i) => label(c, text, (x(i) + wide + x(i + 1)) / 2, h / 2, "center", true));
  },

  // A log is a strip as long as the period. Requests that reach its end are forgotten.
  log(c, w, h, lane, v, now) {
    const floor = h - 16, columns = 16, piles = new Array(columns).fill(0), wide = w - 8;
    const dots = v.log.map((at) => {
      const age = (now - at) / lane.per;
      return [4 + wide * (1 - age), piles[Math.min(columns - 1, Math.floor(age * columns))]++];
    });
    const pitch = Math.min(7, (floor - 8) / Math.max(...piles, 1));
    c.fillStyle = ink.pass;
    if (pitch >= 2) for (const [x, pile] of dots) dot(c, x, floor - 4 - pile * pitch, Math.min(3.2, pitch / 2));
    else piles.forEach((n, i) => c.fillRect(w - 4 - (i + 1) * wide / columns, floor - n * pitch, wide / columns - 1, n * pitch));
    c.strokeStyle = ink.soft;
    c.lineWidth = 2;
    c.beginPath();
    c.moveTo(4, floor - 6); c.lineTo(4, floor + 1); c.lineTo(w - 4, floor + 1); c.lineTo(w - 4, floor - 6);
    c.stroke();
    c.fillStyle = ink.soft;
    label(c, span(lane.per) + " ago", 3, h - 2, "left");
    label(c, "now", w - 3, h - 2, "right");
  },
};

function dot(c, x, y, radius) {
  c.beginPath();
  c.arc(x, y, Math.max(0.1, radius), 0, 7);
  c.fill();
}

// glass is a column of parts on top of each other. A line shows where it is full.
function glass(c, x, h, wide, parts, capacity) {
  const top = 8, tall = h - top - 3;
  let y = h - 2;
  for (const [n, color] of parts) {
    const height = Math.min(tall * Math.max(0, n) / capacity, y - 2);
    c.fillStyle = color;
    c.fillRect(x + 1, y - height, wide - 2, height);
    y -= height;
  }
  c.strokeStyle = ink.soft;
  c.lineWidth = 1.5;
  c.beginPath();
  c.moveTo(x, top - 4); c.lineTo(x, h - 1); c.lineTo(x + wide, h - 1); c.lineTo(x + wide, top - 4);
  c.stroke();
  c.fillStyle = ink.refuse;
  c.fillRect(x - 3, top, wide + 6, 1.5);
}

function dial(c, x, y, radius, gone) {
  c.fillStyle = ink["pass-fill"];
  c.beginPath();
  c.moveTo(x, y);
  c.arc(x, y, radius, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * gone);
  c.fill();
  c.strokeStyle = ink.soft;
  c.lineWidth = 1.5;
  c.beginPath();
  c.arc(x, y, radius, 0, 7);
  c.stroke();
}

function drawGauge(canvas, lane, v, now) {
  const { c, width, height } = pen(canvas);
  gauges[lane.keeps](c, width, height, lane, v, now);
}
