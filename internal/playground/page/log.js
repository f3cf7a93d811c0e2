// The reader's own log. It never leaves the page.

const mostLines = 3e6;
const everybody = "(all together)", unnamed = "(no client named)";

const inBrackets = /\[(\d\d)\/([A-Z][a-z]{2})\/(\d{4}):(\d\d:\d\d:\d\d) ([+-]\d\d)(\d\d)\]/;
const likeISO = /\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?/;
const address = /(?:\d{1,3}\.){3}\d{1,3}|(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}/i;
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// The names under which Caddy, Traefik, Envoy, nginx and others write them in JSON.
const timeNames = ["ts", "time", "timestamp", "@timestamp", "StartUTC", "start_time", "time_iso8601", "time_local", "msec", "date"];
const clientNames = ["client_ip", "remote_ip", "remote_addr", "ClientHost", "client", "ip", "downstream_remote_address", "remote_host"];

// readTime reads a time as microseconds, or gives NaN. A number is in the unit in which it is
// between 1973 and 2286; without a zone, a time is in UTC.
function readTime(value) {
  const n = Number(value);
  if (!Number.isNaN(n) && value !== "") {
    return [1e6, 1e3, 1, 1e-3].map((unit) => Math.round(n * unit)).find((at) => at >= 1e14 && at < 1e16) ?? NaN;
  }
  const text = String(value), b = inBrackets.exec("[" + text + "]");
  if (b) return Date.parse(`${b[3]}-${String(months.indexOf(b[2]) + 1).padStart(2, "0")}-${b[1]}T${b[4]}${b[5]}:${b[6]}`) * 1000;
  const iso = text.replace(" ", "T").replace(",", ".").replace(/([+-]\d\d)(\d\d)$/, "$1:$2");
  return Date.parse(/(Z|[+-]\d\d:\d\d)$/.test(iso) ? iso : iso + "Z") * 1000;
}

// readLine gives the time and the client of a line, or null.
function readLine(line) {
  let at, client;
  if (line[0] === "{") {
    let fields;
    try { fields = JSON.parse(line); } catch { return null; }
    at = timeNames.map((name) => fields[name]).filter((v) => typeof v === "string" || typeof v === "number").map(readTime).find((at) => !Number.isNaN(at));
    client = clientNames.map((name) => fields[name] ?? fields.request?.[name]).find((v) => typeof v === "string" && v);
  } else {
    const brackets = inBrackets.exec(line);
    if (brackets) {
      at = readTime(brackets[0].slice(1, -1));
      client = line.slice(0, line.indexOf(" "));
    } else {
      const time = likeISO.exec(line)?.[0] ?? line.split(/[\s,;]/, 1)[0];
      at = readTime(time);
      client = address.exec(line.replace(time, ""))?.[0];
    }
  }
  return at > 0 ? [at, client || unnamed] : null;
}

class Log {
  constructor(name) { Object.assign(this, { name, lines: 0, unread: 0, first: "", times: new Map(), full: false }); }

  add(line) {
    line = line.trim();
    if (!line) return;
    this.lines++;
    const found = readLine(line);
    if (!found) {
      if (++this.unread === 1) this.first = line.slice(0, 160);
      return;
    }
    const [at, client] = found;
    if (!this.times.has(client)) this.times.set(client, []);
    this.times.get(client).push(at);
  }

  // read reads a file, packed with gzip or not, a piece at a time.
  static async read(file, progress) {
    const log = new Log(file.name || "the pasted text");
    const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
    let bytes = file.stream();
    if (head[0] === 0x1f && head[1] === 0x8b) bytes = bytes.pipeThrough(new DecompressionStream("gzip"));
    let rest = "";
    for (const reader = bytes.pipeThrough(new TextDecoderStream()).getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) log.add(line);
      if (log.lines > mostLines) {
        log.full = true;
        rest = "";
        await reader.cancel();
        break;
      }
      progress(log.lines);
    }
    log.add(rest);
    return log;
  }

  // clients are those with the most lines, and all together.
  clients() {
    const clients = [...this.times].map(([name, times]) => ({ name, count: times.length })).sort((a, b) => b.count - a.count);
    const all = { name: everybody, count: this.lines - this.unread };
    return clients.length > 1 ? [...clients.slice(0, 50), all] : clients;
  }

  // of is when the requests of a client came. Those of one whole second are spread over it.
  of(client) {
    const times = Float64Array.from(client === everybody ? [...this.times.values()].flat() : this.times.get(client)).sort();
    for (let i = 0; i < times.length;) {
      let n = 1;
      while (times[i + n] === times[i]) n++;
      if (times[i] % second === 0) for (let k = 1; k < n; k++) times[i + k] += Math.floor(k * second / n);
      i += n;
    }
    return times;
  }
}

// Logged is a client's part of a log, of which the page shows a stretch.
class Logged {
  constructor(log, client) {
    Object.assign(this, { name: "log", log, client, units: 1, all: log.of(client) });
    this.first = this.all[0];
    this.last = this.all.at(-1);
  }

  get axis() { return { from: this.from, to: this.to, epoch: true }; }

  // show shows the stretch of that length around a time, from a whole part of it on.
  show(length, around) {
    this.length = Math.max(length, 1000);
    this.from = Math.max(0, Math.floor((around - this.length / 4) / (this.length / 4)) * (this.length / 4));
    this.to = this.from + this.length;
  }

  // busiest is when the most requests came within such a length.
  busiest(length) {
    let most = 0, at = this.first;
    for (let i = 0, first = 0; i < this.all.length; i++) {
      while (this.all[first] <= this.all[i] - length) first++;
      if (i - first + 1 > most) { most = i - first + 1; at = this.all[first]; }
    }
    return at;
  }

  times() { return this.all; }
  total() { return this.all.length; }
}
