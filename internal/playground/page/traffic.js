// Drawn traffic is a count for each cell of the time axis. The requests of a cell are spread evenly over
// it. If a limit is large, a mark stands for several requests that come at once.

const cellCount = 80;
const mostMarks = 5000;

class Drawn {
  constructor(name, events, per, units = 1, cells = new Array(cellCount).fill(0)) {
    Object.assign(this, { name, events, per, units, cells });
  }

  get axis() { return { from: 0, to: 4 * this.per, epoch: false }; }

  // put spreads n requests over the cells of a part of the axis, which is four periods long.
  put(from, to, n) {
    const first = Math.round(from * cellCount / 4), last = Math.max(first + 1, Math.round(to * cellCount / 4));
    for (let i = first; i < last; i++) {
      const share = (k) => Math.round(n * (k - first) / (last - first));
      this.cells[i] += share(i + 1) - share(i);
    }
  }

  times() {
    const width = 4 * this.per / cellCount, times = [];
    this.cells.forEach((n, i) => { for (let k = 0; k < n; k++) times.push(Math.floor((i + k / n) * width)); });
    return times;
  }

  total() { return this.cells.reduce((a, b) => a + b, 0); }
}

// The presets are typical traffic, at the size of a limit.
const presets = {
  burst: {
    label: "A burst",
    lesson: () => `A burst is many requests at once. A window passes requests until its count is full. A bucket has a number of its own for bursts, which you can write below: “burst” requests pass at once, then one whenever a token comes back. A queue accepts requests and lets them leave evenly.`,
    draw: (t, n) => { t.put(0.5, 0.55, 1.5 * n); t.put(1.6, 2.2, 0.3 * n); t.put(3.3, 3.35, n); },
  },
  boundary: {
    label: "Around a boundary",
    lesson: (t) => `A fixed window starts at 0 again by the clock, here every ${span(t.per)}. Requests just before the boundary and just after it are counted in different windows, so twice the limit passes. Later the same requests come in the middle of a window, and half of them are refused.`,
    draw: (t, n) => { t.put(0.75, 1, n); t.put(1, 1.25, n); t.put(3.3, 3.8, 2 * n); },
  },
  steady: {
    label: "Twice too fast",
    lesson: (t) => `Requests come evenly, at twice the allowed rate, so half of them are refused. A window passes the first requests of a period and then none. An empty bucket passes every second request.`,
    draw: (t, n) => t.put(0, 4, 8 * n),
  },
  crowd: {
    label: "A crowd",
    lesson: (t) => `People come in clumps, here at nearly the allowed rate. A limit that is right on average still refuses some of them, unless it has room for a burst.`,
    draw: (t, n) => {
      let seed = 7;
      const random = () => (seed = seed * 48271 % 2147483647) / 2147483647;
      for (let left = Math.round(3.6 * n); left > 0;) {
        const clump = Math.min(left, 1 + Math.floor(random() ** 3 * 0.9 * n)), at = Math.floor(random() ** 1.2 * (cellCount - 1));
        t.cells[at] += clump;
        left -= clump;
      }
    },
  },
};
const lessonOfDrawing = "Your own traffic. Drag across the grid to draw more of it, or write another limit.";

// preset draws a preset for a limit.
function preset(name, events, per) {
  const marks = 250; // at most in a period
  const t = new Drawn(name, events, per, Math.max(1, Math.ceil(events / marks)));
  presets[name].draw(t, events / t.units);
  return t;
}

// Cells as text: counts, with x and how often for repeated counts.
function writeCells(cells) {
  const runs = [];
  for (const n of cells) {
    if (runs.length && runs.at(-1)[0] === n) runs.at(-1)[1]++;
    else runs.push([n, 1]);
  }
  return runs.map(([n, times]) => times > 1 ? n + "x" + times : String(n)).join(".");
}
function readCells(text) {
  const cells = [];
  for (const run of text.split(".")) {
    const [, n, times = "1"] = /^(\d{1,4})(?:x(\d{1,2}))?$/.exec(run) || [];
    if (n === undefined || cells.length + Number(times) > cellCount) return null;
    for (let i = 0; i < Number(times); i++) cells.push(Number(n));
  }
  return cells.length === cellCount && cells.reduce((a, b) => a + b, 0) <= mostMarks ? cells : null;
}
