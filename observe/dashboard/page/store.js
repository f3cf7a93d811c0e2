function drawStore() {
  const s = last.store;
  $("store").dataset.bad = s.bad;
  say($("store-state"), s.text);
  say($("store-time"), s.median && !s.bad ? "Decides in " + s.median + ", one in a hundred takes " + s.slowest + " or more." : "");
  say($("store-error"), s.error || "");
  const list = $("store-figures");
  list.closest("details").hidden = s.figures.length === 0;
  if (list.childElementCount !== 2 * s.figures.length) {
    list.replaceChildren(...s.figures.flatMap(() => [el("dt"), el("dd")]));
  }
  s.figures.forEach((f, i) => { say(list.children[2 * i], f.name); say(list.children[2 * i + 1], f.value); });
}
cards.push(drawStore);
