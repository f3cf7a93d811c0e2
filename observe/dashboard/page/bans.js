// Bans.

let drawnBans = "", allBans = false;
const someBans = 8;
if ($("bans")) $("bans-all").addEventListener("click", () => { allBans = true; drawBans(); });
function drawBans() {
  const b = last.bans;
  if (!$("bans") || !b) return;
  say($("bans-total"), b.total ? whole.format(b.total) : "");
  const note = b.error ? b.error : b.total > b.list.length ? "The page shows the " + b.list.length + " bans that end first."
    : b.total === 0 ? "No client is banned." : "";
  say($("bans-note"), note);
  const drawn = JSON.stringify(b.list);
  if (drawn !== drawnBans) {
    drawnBans = drawn;
    $("banned").replaceChildren(...b.list.map((ban) => el("li", {},
      el("span", {}, el("code", {}, ban.name || ban.key), ban.name ? el("small", {}, "digest " + ban.key) : "", el("small", { class: "why" })),
      el("button", { type: "button", class: "acts", "aria-label": "Unban " + ban.key, on: { click: () => act("unban", "", ban.key) } }, "Unban"))));
  }
  const few = allBans || b.list.length <= someBans + 2 ? b.list.length : someBans;
  $("bans-all").hidden = few === b.list.length;
  say($("bans-all"), "Show " + (b.list.length - few) + " more");
  b.list.forEach((ban, i) => {
    const item = $("banned").children[i];
    item.hidden = i >= few;
    const small = item.querySelector(".why");
    say(small, leftOf(ban) + ", " + whyOf(ban));
  });
}
const leftOf = (ban) => ban.until ? until(ban.until) : "permanent";
// whyOf says since when, by whom and why a client is banned, as far as that is known.
const whyOf = (ban) => (ban.since ? "since " + clock(ban.since) : "since an unknown time") + ", by " +
  (ban.rule ? "rule " + ban.rule + (ban.reason ? ": " + ban.reason : "") + (ban.times > 1 ? ", for the " + ordinal(ban.times) + " time" : "")
    : (ban.by || "hand") + ": " + (ban.reason || "no reason given"));
const ordinal = (n) => n + (["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] || "th");
cards.push(drawBans);
