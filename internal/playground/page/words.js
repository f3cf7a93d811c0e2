// Times, numbers and names as text. Times are in microseconds, like the engine's.

const second = 1e6, minute = 60 * second, hour = 60 * minute, day = 24 * hour;
const units = [[day, "d"], [hour, "h"], [minute, "min"], [second, "s"], [1e3, "ms"], [1, "µs"]];

const whole = new Intl.NumberFormat("en");

// span is a length of time: 10 s, 1.5 h.
function span(us) {
  if (us <= 0) return "0\u00a0s";
  const [length, unit] = units.find(([length]) => us >= length) || units.at(-1);
  const n = us / length;
  return (n >= 100 || Number.isInteger(n) ? whole.format(Math.round(n)) : String(Number(n.toPrecision(n < 10 ? 2 : 3)))) + "\u00a0" + unit; // which stay together
}

// clock is a time on the axis: from its beginning, or in a log the time of day in UTC. A steady clock
// always has as many digits, so that it does not jump.
function clock(us, axis, steady) {
  const wide = axis.to - axis.from;
  if (axis.epoch) {
    const text = new Date(us / 1000).toISOString();
    return wide > 2 * day ? text.slice(5, 16).replace("T", " ") : text.slice(11, wide < minute ? 21 : 19);
  }
  const [length, unit] = units.find(([length]) => wide >= 2 * length) || units.at(-1);
  const text = (us / length).toFixed(wide < 20 * length ? 2 : 1);
  return (steady ? text : Number(text)) + " " + unit;
}

const plural = (n, one, many) => whole.format(n) + " " + (n === 1 ? one : many || one + "s");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

// Sentences depend on an algorithm's kind of state, so a new algorithm has a sentence too.
const sentences = {
  bucket: (l) => `A bucket of ${plural(l.capacity, "token")}. Each request takes one; one comes back every ${span(l.per / l.events)}.`,
  queue: (l) => `A queue of at most ${plural(l.capacity, "request")}. One leaves every ${span(l.per / l.events)}.`,
  window: (l) => `Counts up to ${whole.format(l.events)}, and starts at 0 again every ${span(l.per)}, by the clock.`,
  windows: (l) => `Counts this window, and the part of the previous window that lies in the last ${span(l.per)}.`,
  log: (l) => `Remembers the time of each request: never more than ${whole.format(l.events)} in any ${span(l.per)}.`,
};

// Why a limit passes more requests in one period than it says.
const reasons = {
  bucket: "it had saved tokens in a pause, and got more meanwhile",
  queue: "the first request leaves at once, the others evenly",
  window: "it forgets earlier requests at the boundary",
  windows: "it knows how many requests came in the previous window, but not when",
  log: "",
};

// The title of a lane's lower panel.
const panels = { bucket: "tokens left", queue: "in the queue", window: "counted", windows: "counted", log: "in the log" };
