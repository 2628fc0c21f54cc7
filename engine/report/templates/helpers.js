// Short names for the page's scripts, which page.py joins into one.
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const number = new Intl.NumberFormat("en");
const element = (tag, text = "", name = "") => {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
};
const size = (bytes) => {
  const [scale, unit] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([each]) => bytes >= each) || [1, "B"];
  return `${Number((bytes / scale).toPrecision(3))} ${unit}`;
};
const short = (value) => {
  const [scale, unit] = [[1e9, " G"], [1e6, " M"], [1e3, " k"]].find(([each]) => value >= Math.max(each, 9999.5)) || [1, ""];
  return scale === 1 ? number.format(value) : Number((value / scale).toPrecision(3)) + unit;
};
const percent = (share) => (share >= 0.0995 ? `${Math.round(100 * share)} %` : `${(100 * share).toFixed(1)} %`);
const sum = (values) => values.reduce((one, other) => one + other, 0);
const stepsOf = (shown) => (shown.supersteps.length ? shown.supersteps : shown.operations);
const link = (text, hash) => {
  const made = element("a", text);
  made.href = `#${hash}`;
  return made;
};

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// Tables -------------------------------------------------------------------------------------------------------------
const cell = (text, name = "") => element("td", text, name);

// The head of a row: a name, and the line of the user's program that made it.
function heading(name, source) {
  const title = element("th", name);
  title.scope = "row";
  if (source) {
    const line = element("small", ` ${source.split("/").pop()}`);
    line.title = source;
    title.append(line);
  }
  return title;
}

// Each cell has its column's title, for phones, where rows are blocks.
function labelled(table) {
  const titles = $$("thead th", table).map((head) => head.textContent);
  for (const line of $$("tbody tr", table)) [...line.cells].forEach((each, at) => { each.dataset.label = titles[at]; });
}

function fill(table, rows) {
  $("tbody", table).replaceChildren(...rows);
  labelled(table);
}

// Tips ---------------------------------------------------------------------------------------------------------------
const tip = element("div", "", "tip");
tip.hidden = true;

function tellAt(event, value) {
  tip.hidden = value == null;
  if (tip.hidden) return;
  const lines = typeof value === "object" ? Object.entries(value) : [["", String(value)]];
  tip.replaceChildren(...lines.map(([name, text]) => {
    const line = element("div");
    if (name) line.append(element("span", `${name} `));
    line.append(String(text));
    return line;
  }));
  const right = event.clientX > innerWidth - 260;
  tip.style.left = right ? "auto" : `${event.clientX + 14}px`;
  tip.style.right = right ? `${innerWidth - event.clientX + 14}px` : "auto";
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
}

// Places: [origin, ring, start, tiles, per_tile, last_tile], see schema.json ------------------------------------------
function rangesOf([origin, ring, start, tiles]) {
  const end = start + tiles;
  if (!tiles) return [];
  return end <= ring ? [[origin + start, origin + end]] : [[origin + start, origin + ring], [origin, origin + end - ring]];
}

function bytesOn([origin, ring, start, tiles, perTile, lastTile], tile) {
  if (tile < origin || tile >= origin + ring) return 0;
  const at = (tile - origin - start + ring) % ring;
  return at < tiles - 1 ? perTile : at === tiles - 1 ? lastTile : 0;
}

const covers = (place, tile) => rangesOf(place).some(([begin, end]) => begin <= tile && tile < end);
