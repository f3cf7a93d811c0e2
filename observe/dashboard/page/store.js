function drawStore() {
  const s = last.store;
  $("store").dataset.bad = s.bad;
  say($("store-state"), s.text);
  say($("store-time"), s.median && !s.bad ? "Decides in " + s.median + ", one in a hundred takes " + s.slowest + " or more." : "");
  const servers = last.outage && last.outage.servers || [];
  say($("store-error"), servers.length ? "" : s.error || "");
  items($("store-servers"), servers.length, () => el("li", {}, el("b"), el("span"), el("code"))).forEach((item, i) => {
    const server = servers[i];
    say(item.children[0], server.server || "Its server");
    say(item.children[1], (server.unusable ? " cannot do what is needed, since " : " down since ") + clock(server.since, true));
    say(item.children[2], server.cause || "the cause is not known");
  });
  say($("store-now"), last.outage ? "Each rule does what its outage policy says for keys that are counted there: see Rules." : "");
  const list = $("store-figures");
  list.closest("details").hidden = s.figures.length === 0;
  if (list.childElementCount !== 2 * s.figures.length) {
    list.replaceChildren(...s.figures.flatMap(() => [el("dt"), el("dd")]));
  }
  s.figures.forEach((f, i) => { say(list.children[2 * i], f.name); say(list.children[2 * i + 1], f.value); });
}
cards.push(drawStore);
