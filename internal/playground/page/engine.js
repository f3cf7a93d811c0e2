// The engine is package limiter, compiled to WebAssembly. The page carries it as gzip in base64
// and makes an instance of it when it is first asked.

// lacking says what this browser lacks, or nothing.
function lacking() {
  if (typeof WebAssembly !== "object") return "This browser does not run WebAssembly, or WebAssembly is turned off.";
  if (typeof DecompressionStream !== "function") return "This browser is too old: it cannot unpack the engine (DecompressionStream).";
  return "";
}

class Engine {
  // load makes an instance, which is no page's but this one's.
  static async load() {
    const packed = Uint8Array.from(atob(document.getElementById("engine").textContent), (c) => c.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const engine = new Engine();
    const { instance } = await WebAssembly.instantiate(await new Response(unpacked).arrayBuffer(), {
      wasi_snapshot_preview1: engine.system(),
    });
    engine.go = instance.exports;
    engine.go._initialize();
    return engine;
  }

  // system is the little of an operating system that Go asks for as it starts: a clock, random
  // numbers, and where to write why it panics. All else there is not.
  system() {
    const notThere = 52, badFile = 8;
    const view = () => new DataView(this.go.memory.buffer);
    const known = {
      clock_time_get: (_, __, at) => { view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true); return 0; },
      random_get: (at, n) => { crypto.getRandomValues(new Uint8Array(this.go.memory.buffer, at, n)); return 0; },
      fd_write: (_, lists, n, written) => {
        let total = 0;
        for (let i = 0; i < n; i++) {
          const at = view().getUint32(lists + 8 * i, true), length = view().getUint32(lists + 8 * i + 4, true);
          this.last = (this.last || "") + new TextDecoder().decode(new Uint8Array(this.go.memory.buffer, at, length));
          total += length;
        }
        view().setUint32(written, total, true);
        return 0;
      },
      args_sizes_get: (n, size) => { view().setUint32(n, 0, true); view().setUint32(size, 0, true); return 0; },
      environ_sizes_get: (n, size) => { view().setUint32(n, 0, true); view().setUint32(size, 0, true); return 0; },
      args_get: () => 0,
      environ_get: () => 0,
      sched_yield: () => 0,
      fd_prestat_get: () => badFile,
      proc_exit: (code) => { throw new Error("the engine ended with " + code + ": " + (this.last || "")); },
    };
    return new Proxy({}, { get: (_, name) => known[name] || (() => notThere) });
  }

  #numbers(n) { return new Float64Array(this.go.memory.buffer, this.go.output(), n).slice(); }
  #words(n) { return new TextDecoder().decode(new Uint8Array(this.go.memory.buffer, this.go.output(), n)).split("\0"); }

  // limits are limits of all algorithms there are, as texts.
  limits(events, per) { return this.#words(this.go.limits(events, per)); }

  // limit has a lane decide by the limit that text says.
  limit(lane, text) {
    const bytes = new TextEncoder().encode(text);
    const at = this.go.room(bytes.length / 8 + 1);
    new Uint8Array(this.go.memory.buffer, at, bytes.length).set(bytes);
    const [error, algorithm, keeps, events, per, capacity] = this.#words(this.go.limit(lane, bytes.length));
    return error ? { error } : { algorithm, keeps, events: Number(events), per: Number(per), capacity: Number(capacity) };
  }

  // traffic is when requests arrive, and how many units each costs.
  traffic(times, units) {
    const at = this.go.room(times.length);
    new Float64Array(this.go.memory.buffer, at, times.length).set(times);
    this.go.traffic(times.length, units);
  }

  decide(lane, { from, to }, points) {
    const n = this.#numbers(this.go.decide(lane, from, to, points));
    return { most: n[0], from: n[1], used: n.subarray(2, 2 + points), waits: n.subarray(2 + points) };
  }

  look(lane, now) {
    const [remaining, next, retry, delay, current, previous, ...log] = this.#numbers(this.go.look(lane, now));
    return { remaining, next, retry, delay, current, previous, log };
  }
}
