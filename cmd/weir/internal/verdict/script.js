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
  // What matters are the last few percent, so heights are cube roots of shares.
  const width = 600, height = 200;
  const y = (share) => height * (1 - Math.cbrt(share));
  const x = (i, points) => points.length < 2 ? width / 2 : width * i / (points.length - 1);
  const levels = [1, 0.5, 0.1, 0.01, 0.001];
  let curve, at;

  function draw() {
    const points = curve.points;
    const path = (of) => points.map((p, i) => `${i ? "L" : "M"}${x(i, points)} ${y(p[of])}`).join("");
    at = svg("line", {class: "at", y1: 0, y2: height});
    $("drawn").replaceChildren(
      ...levels.map((share) => svg("line", {x1: 0, x2: width, y1: y(share), y2: y(share)})),
      svg("path", {class: "requests", d: path("requests")}),
      svg("path", {class: "clients", d: path("keys")}),
      at);
    $("levels").replaceChildren(...levels.map((share) => {
      const label = document.createElement("span");
      label.textContent = 100 * share + "%";
      label.style.top = `${100 * y(share) / height}%`;
      return label;
    }));
    const few = [0, 1, 2, 3, 4].map((i) => points[Math.round(i * (points.length - 1) / 4)].number);
    $("limits").replaceChildren(...[...new Set(few)].map((limit) => {
      const label = document.createElement("span");
      label.textContent = limit;
      return label;
    }));
  }

  function show() {
    const i = +$("limit").value, point = curve.points[i];
    at.setAttribute("x1", x(i, curve.points));
    at.setAttribute("x2", x(i, curve.points));
    const [limit, rest] = $("point").children;
    limit.textContent = point.limit;
    rest.textContent = point.says;
    $("limit").setAttribute("aria-valuetext", `${point.limit} ${point.says}`);
    $("text").textContent = point.text;
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
