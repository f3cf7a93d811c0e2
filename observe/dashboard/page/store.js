function drawStore() {
  const s = last.store;
  $("store").dataset.bad = s.bad;
  say($("store-state"), s.text);
  const servers = s.servers || [];
  say($("store-error"), servers.length ? "" : s.error || "");
  items($("store-servers"), servers.length, () => el("li", {}, el("b"), el("span"), el("code"))).forEach((item, i) => {
    const server = servers[i];
    say(item.children[0], server.server || "Its server");
    say(item.children[1], (server.unusable ? " cannot be used since " : " down since ") + clock(server.since, true));
    say(item.children[2], server.cause || "unknown cause");
  });
  say($("store-now"), last.outage ? "For keys that are counted there, each rule follows its outage policy: see Rules." : "");
}
cards.push(drawStore);
