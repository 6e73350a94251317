"use strict";
// Asks this machine for figures once a second and draws them.

const EVERY = 1000;
const TILES = {
  agents: { events: "events", agents: "agents", releases: "releases", estimates: "estimates", refusals: "refused", input_lag: "not read yet", pending: "wait for event time" },
  rounds: { agents: "users", releases: "reports", estimates: "windows answered", waiting: "waiting", over_budget: "over budget" },
};
let shown = null;
let figures = null;
let chosen = null; // start of the window whose stages are shown; null for the newest
let agent = null;

function tiles(found) {
  const entries = Object.entries(TILES[found.kind]).map(([key, label]) => [label, number(found.counts[key])]);
  const time = found.counts.event_time;
  const sensible = time !== null && time !== undefined && Math.abs(time) < 1e11;
  const reached = sensible ? new Date(time * 1000).toISOString().slice(0, 16).replace("T", " ") : "-";
  if (found.kind === "agents") entries.push(["event time (UTC)", reached]);
  byId("tiles").replaceChildren(...entries.map(([label, text]) => {
    const tile = Object.assign(document.createElement("div"), { className: "tile" });
    const value = Object.assign(document.createElement("b"), { textContent: text, className: text.length > 12 ? "long" : "" });
    value.dataset.name = label;
    tile.append(value, Object.assign(document.createElement("span"), { className: "quiet", textContent: label }));
    return tile;
  }));
}

function state(text, running) {
  byId("state").textContent = text;
  byId("state").classList.toggle("running", running);
}

function choose(index) {
  chosen = figures.windows[index].start;
  render();
}

function render() {
  const found = figures;
  state(found.running ? (found.problem ? "not ready" : "running") : "finished", found.running && !found.problem);
  byId("problem").textContent = found.problem ?? "";
  byId("kind").textContent = found.kind === "rounds"
    ? "one private mean per window; everything here is public"
    : "one private mean per agent; this page is private";
  for (const kind of ["agents", "rounds"]) {
    document.querySelectorAll(`.${kind}`).forEach((card) => { card.hidden = kind !== found.kind; });
  }
  document.body.className = `of-${found.kind}`;
  tiles(found);
  if (found.kind === "rounds") {
    const at = found.windows.findIndex((row) => row.start === chosen);
    const index = at < 0 ? found.windows.length - 1 : at;
    drawWindows(found.windows, index, choose);
    drawStages(found.windows[index], found.bounds);
  } else {
    drawConvergence(found.convergence, found.first_release);
    drawPopulation(found.population);
    byId("agent-card").hidden = !found.searchable;
    drawFlow(found.flow, found.running);
    drawRejects(found.rejects);
  }
  byId("protected").textContent = found.protected;
  drawBudget(found.budget, found.kind);
}

async function search(name) {
  const answer = await fetch(`agent?name=${encodeURIComponent(name)}`);
  if (!answer.ok) return null;
  const found = await answer.json();
  byId("names").replaceChildren(...found.like.map((like) => Object.assign(document.createElement("option"), { value: like })));
  return found;
}

async function look() {
  try {
    const answer = await fetch("data");
    if (!answer.ok) {
      state(answer.status === 401 || answer.status === 403 ? "the token is not that of this run" : "no answer", false);
      return;
    }
    figures = await answer.json();
    const version = `${figures.version} ${figures.problem ?? ""}`;
    if (version !== shown) {
      shown = version;
      render();
      if (figures.searchable) drawAgent(agent ? await search(agent) : null);
    }
  } catch {
    state("the engine has ended", false);
  }
}

async function forever() {
  await look();
  setTimeout(forever, document.hidden ? 5 * EVERY : EVERY);
}

byId("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  agent = byId("name").value.trim() || null;
  drawAgent(agent ? await search(agent) : null);
});
byId("name").addEventListener("input", () => search(byId("name").value.trim()));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => figures && render());
forever();
