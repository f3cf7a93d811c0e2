// Times, numbers and names as people read them. Times are in microseconds, as the engine's.

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

// clock is a time on the axis: counted from its beginning, or in a log the time of day in UTC.
// A steady one has as many digits at all times, so that it does not jump as it runs.
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

// An algorithm's sentence goes by what it keeps, so that a new one has a sentence too.
const sentences = {
  bucket: (l) => `A bucket of ${plural(l.capacity, "token")}. Each request takes one; one comes back every ${span(l.per / l.events)}.`,
  queue: (l) => `Requests queue, at most ${whole.format(l.capacity)} of them, and one leaves every ${span(l.per / l.events)}.`,
  window: (l) => `Counts up to ${whole.format(l.events)}, and from 0 again every ${span(l.per)}, when the clock says so.`,
  windows: (l) => `Counts this window, and of the one before the share that the last ${span(l.per)} still hold.`,
  log: (l) => `Remembers when each came: never more than ${whole.format(l.events)} in any ${span(l.per)}.`,
};

// Why a limit lets more through in one period than it says.
const reasons = {
  bucket: "it had saved up tokens while nothing came, and more came back meanwhile",
  queue: "the first leaves at once, the others evenly",
  window: "at the boundary it forgets what came before",
  windows: "it knows how many came in the window before, but not when",
  log: "",
};

// What a lane's lower panel shows.
const panels = { bucket: "tokens left", queue: "in the queue", window: "counted", windows: "counted", log: "in the log" };
