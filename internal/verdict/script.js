"use strict";
(() => {
  const curves = JSON.parse(document.getElementById("curves").textContent);
  if (!curves?.length) return;
  const $ = (id) => document.getElementById(id);
  const svg = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const number = (n) => n.toLocaleString("en-US");
  const percent = (n, all) => {
    const p = 100 * n / Math.max(1, all);
    if (p === 0 || p === 100) return p + "%";
    if (p < 0.01) return "<0.01%";
    if (p > 99.99) return ">99.99%";
    return +p.toFixed(p < 1 || p > 99 ? 2 : 1) + "%";
  };

  // What matters are the last few percent, so heights are cube roots of shares.
  const width = 600, height = 200;
  const y = (share) => height * (1 - Math.cbrt(share));
  const x = (i, points) => points.length < 2 ? width / 2 : width * i / (points.length - 1);
  const levels = [1, 0.5, 0.1, 0.01, 0.001];
  let curve, at;

  function draw() {
    const points = curve.points;
    const path = (of, all) => points.map((p, i) => `${i ? "L" : "M"}${x(i, points)} ${y(of(p) / Math.max(1, all))}`).join("");
    at = svg("line", {class: "at", y1: 0, y2: height});
    $("drawn").replaceChildren(
      ...levels.map((share) => svg("line", {x1: 0, x2: width, y1: y(share), y2: y(share)})),
      svg("path", {class: "requests", d: path((p) => p.requests, curve.requests)}),
      svg("path", {class: "clients", d: path((p) => p.keys, curve.keys)}),
      at);
    const box = $("drawn").getBoundingClientRect().height;
    $("levels").replaceChildren(...levels.map((share) => {
      const label = document.createElement("span");
      label.textContent = 100 * share + "%";
      label.style.top = `${(y(share) / height - 1) * box}px`;
      return label;
    }));
    const few = [0, 1, 2, 3, 4].map((i) => points[Math.round(i * (points.length - 1) / 4)].limit);
    $("limits").replaceChildren(...[...new Set(few)].map((limit) => {
      const label = document.createElement("span");
      label.textContent = number(limit);
      return label;
    }));
  }

  function show() {
    const point = curve.points[$("limit").value];
    const i = +$("limit").value;
    at.setAttribute("x1", x(i, curve.points));
    at.setAttribute("x2", x(i, curve.points));
    const [limit, rest] = $("point").children;
    limit.textContent = `${number(point.limit)} per ${curve.per}`;
    rest.textContent = curve.keys > 1
      ? `would have refused ${number(point.keys)} of ${number(curve.keys)} clients (${percent(point.keys, curve.keys)}) and ${number(point.requests)} of ${number(curve.requests)} requests (${percent(point.requests, curve.requests)})`
      : `would have refused ${number(point.requests)} of ${number(curve.requests)} requests (${percent(point.requests, curve.requests)})`;
    $("limit").setAttribute("aria-valuetext", `${limit.textContent} ${rest.textContent}`);
    $("text").textContent = curve.text.replace("LIMIT", `${point.limit}/${curve.period}`);
    $("copy").textContent = "Copy";
  }

  function choose(i) {
    curve = curves[i];
    $("limit").max = curve.points.length - 1;
    $("limit").value = curve.begin;
    $("said").textContent = curve.said;
    draw();
    show();
  }

  $("moved").hidden = false;
  $("which-label").hidden = curves.length < 2;
  $("which").addEventListener("change", () => choose($("which").value));
  $("limit").addEventListener("input", show);
  addEventListener("resize", () => { draw(); show(); });
  $("copy").addEventListener("click", async () => {
    getSelection().selectAllChildren($("text"));
    try {
      await navigator.clipboard.writeText($("text").textContent);
      $("copy").textContent = "Copied";
    } catch {
      $("copy").textContent = "Selected"; // a page from disk may not write to the clipboard
    }
  });
  choose(0);
})();
