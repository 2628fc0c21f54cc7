// The page is complete without this script, which makes charts interactive, sections tabs and tables sortable.
// Tabs -------------------------------------------------------------------------------------------------------------
const sections = $$("main > section");
let charts = {}, report = null, views = [], all = {}, leads = {}, shown = null, rowsOf = null, lanes = null;
const drawn = new Map();
const phone = matchMedia("(max-width: 640px)"), desktop = matchMedia("(min-width: 1000px)");

// A hash is a section, and in some a name, compute set or tile: #operations/dense MatMul, #liveness/12, #memory/7.
const PLACES = { operations: ".tools", liveness: "#alive-title", memory: "#tile-title", trace: "#lanes-title" };

function show(hash) {
  const [key, ...rest] = decodeURIComponent(hash).split("/");
  const chosen = sections.find((section) => section.id === key) || sections[0];
  const named = rest.join("/");
  if (report && named && key === "operations") { $("#filter").value = `"${named}"`; operations(); }
  if (report && named && key === "liveness") alive(Number(named));
  if (lanes && named && key === "memory" && shown.tiles[named]) showTile(shown, report.memory_categories, Number(named));
  for (const section of sections) section.classList.toggle("shown", section === chosen);
  for (const link of $$("nav a")) {
    if (link.hash === `#${chosen.id}`) {
      link.setAttribute("aria-current", "page");
      link.parentElement.scrollLeft = link.offsetLeft - (link.parentElement.clientWidth - link.offsetWidth) / 2;
    } else link.removeAttribute("aria-current");
  }
  draw(chosen);
  if (lanes && key === "trace") lanes.paint();
  if (lanes && named && key === "trace") lanes.focus(Number(named));
  if (report && named && PLACES[key]) $(PLACES[key]).scrollIntoView({ block: "start" });
}

// Charts ---------------------------------------------------------------------------------------------------------
const tell = (_, event, item, value) => tellAt(event, value);

// Vega cuts legends and titles wider than a chart: on narrow pages legends get rows, and names of bars less space.
// On phones these are above their bars.
const LEGEND_ENTRY = 130;
function fitted(chart) {
  if (desktop.matches) return chart;
  const made = structuredClone(chart);
  let beside = 60;
  const axis = made.encoding && made.encoding.y && made.encoding.y.axis;
  if (axis && axis.labelLimit === 0) {
    beside = phone.matches ? 0 : 240;
    const letters = Math.floor((beside || innerWidth - 60) / (0.56 * axis.labelFontSize));
    axis.labelExpr = `truncate(${axis.labelExpr}, ${letters}, "center")`;
    if (phone.matches) {
      Object.assign(axis, { labelAlign: "left", labelPadding: -2, labelOffset: -9, zindex: 1 });
      Object.assign(made.mark, { height: { band: 0.4 }, yOffset: 4 });
      made.height = 32 * new Set(made.data.values.map((row) => row.key)).size;
    }
  }
  const columns = Math.max(1, Math.floor((innerWidth - 40 - beside) / LEGEND_ENTRY));
  made.config.legend = { ...made.config.legend, columns };
  made.config.axis = { ...made.config.axis, titleFontSize: 11 };
  return made;
}

function draw(section) {
  if (!window.vegaEmbed) return;
  for (const figure of $$("figure[data-chart]", section)) {
    const name = figure.dataset.chart;
    const look = `${phone.matches} ${desktop.matches}`;
    if (drawn.get(name) === look || !charts[name]) continue;
    drawn.set(name, look);
    const drawing = $(".drawing", figure);
    const place = element("div", "", "drawing");
    if (charts[name].usermeta) place.style.setProperty("--least", `${charts[name].usermeta.leastWidth}px`);
    drawing.before(place);
    const options = { mode: "vega-lite", renderer: "svg", actions: false, defaultStyle: false, tooltip: tell };
    vegaEmbed(place, fitted(charts[name]), options).then(({ view }) => {
      drawing.remove();
      view.addEventListener("click", (_, item) => {
        const { operation, step, tile } = (item && item.datum) || {};
        if (operation && report.operations.some((row) => row.name === operation)) location.hash = `operations/${encodeURIComponent(operation)}`;
        else if (step !== undefined) location.hash = `liveness/${step}`;
        else if (name === "memory-map" && tile !== undefined) location.hash = `memory/${tile}`;
      });
      if (name === "live-bytes") view.addSignalListener("step", (_, value) => alive(value && value.step && value.step[0]));
    });
  }
}

// Tables ---------------------------------------------------------------------------------------------------------
const MOST = 500;
const sorting = { key: "cycles", up: false };

function operations() {
  const text = $("#filter").value, exact = /^"(.*)"$/.exec(text);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (row) => exact ? row.name === exact[1] : words.every((word) => `${row.name} ${row.layer} ${row.source || ""} ${row.unit} ${row.method} ${row.dtype}`.toLowerCase().includes(word));
  const listed = rowsOf ? report.operations.slice(...rowsOf) : report.operations;
  const found = listed.filter(matches);
  const sign = sorting.up ? 1 : -1;
  const value = (row) => (row[sorting.key] === null ? -1 : row[sorting.key]);
  found.sort((a, b) => (value(a) < value(b) ? -sign : value(a) > value(b) ? sign : a.number - b.number));
  const rows = found.slice(0, MOST).map((row) => {
    const line = element("tr");
    const title = heading(row.name, row.source);
    const place = cell(report.supersteps.length ? row.number : "", "n");
    if (!report.supersteps.length) place.append(link(row.number, `liveness/${row.number}`));
    line.append(place, title);
    const unit = cell(row.unit + (row.method ? " " : ""));
    if (row.method) unit.append(element("small", row.method));
    line.append(unit, cell(row.dtype));
    for (const key of ["tiles", "runs", "cycles", "compute", "exchange"]) line.append(cell(number.format(row[key]), "n"));
    line.append(cell(short(row.flop), "n"), cell(size(row.bytes), "n"));
    line.append(cell(row.peak_share === null ? "" : percent(row.peak_share), "n"));
    return line;
  });
  fill($("#table"), rows);
  const cycles = sum(found.map((row) => row.cycles));
  $("#shown").textContent = `Showing ${number.format(rows.length)} of ${number.format(listed.length)} compute sets${rowsOf ? " of this IPU" : ""}; ` +
    `the ${number.format(found.length)} found take ${number.format(cycles)} cycles`;
  for (const head of $$("#table th[data-key]")) {
    head.setAttribute("aria-sort", head.dataset.key === sorting.key ? (sorting.up ? "ascending" : "descending") : "none");
  }
}

function sortable() {
  for (const head of $$("#table th[data-key]")) {
    head.setAttribute("role", "button");
    head.tabIndex = 0;
    const choose = () => {
      const key = head.dataset.key;
      sorting.up = key === sorting.key ? !sorting.up : ["name", "layer", "unit", "dtype", "number"].includes(key);
      sorting.key = key;
      operations();
    };
    head.addEventListener("click", choose);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
    });
  }
  $("#filter").hidden = false;
  $("#filter").addEventListener("input", operations);
  operations();
}

function alive(step) {
  if (step === undefined || step === null) return;
  const colours = report.memory_categories;
  const found = shown.liveness.tensors.filter((tensor) => tensor.always_live || (tensor.first <= step && step <= tensor.last));
  const rows = found.slice(0, 40).map((tensor) => {
    const line = element("tr");
    const title = heading(tensor.name, tensor.source);
    const category = element("td");
    category.append(element("i", "", `dot category-${colours.indexOf(tensor.category)}`), tensor.category);
    line.append(title, cell(tensor.layer), cell(tensor.shape), category, cell(number.format(tensor.bytes), "n"));
    if (tensor.always_live) {
      const always = cell("always", "n");
      always.colSpan = 2;
      line.append(always);
    } else line.append(cell(tensor.first, "n"), cell(tensor.last, "n"));
    return line;
  });
  fill($("#alive"), rows);
  $("#alive-title").textContent = `Alive at compute set ${number.format(step)}, ${stepsOf(shown)[step].name}`;
}

// IPUs of a pipeline ---------------------------------------------------------------------------------------------
function choose(number) {
  const view = number < 0 ? { charts: all, leads, rows: null } : views[number];
  shown = number < 0 ? report : report.by_ipu[number];
  charts = { ...all, ...view.charts };
  rowsOf = view.rows;
  for (const [key, text] of Object.entries(view.leads)) $(`[data-lead="${key}"]`).textContent = text;
  fill($("#categories"), Object.entries(shown.memory.categories).map(([name, sizes]) => {
    const line = element("tr"), title = element("th"), all = sum(sizes);
    title.scope = "row";
    title.append(element("i", "", `dot category-${report.memory_categories.indexOf(name)}`), name);
    line.append(title, ...[all, all / sizes.length, Math.max(...sizes)].map((each) => cell(size(each), "n")));
    return line;
  }));
  operations();
  drawn.clear();
  alive(shown.memory.peak_at);
  tilesOf(shown);
  draw($("section.shown"));
}

// Tiles ----------------------------------------------------------------------------------------------------------
// Older reports do not say what is on which tile.
function tilesOf(shown) {
  if (!shown.work) return;
  showTile(shown, report.memory_categories, shown.memory.peak_tile);
  showTree(shown);
  lanes.load(shown);
}

function mapped() {
  if (!report.work) return;
  $('figure[data-chart="lanes"]').remove();
  for (const each of $$(".mapped")) each.hidden = false;
  lanes = new Lanes((tile) => { location.hash = `memory/${tile}`; });
  $("#tile").addEventListener("change", ({ target }) => {
    const tile = Math.min(shown.tiles.length - 1, Math.max(0, Math.round(target.valueAsNumber || 0)));
    showTile(shown, report.memory_categories, tile);
  });
  tilesOf(shown);
}

// ----------------------------------------------------------------------------------------------------------------
document.documentElement.classList.add("scripted");
document.body.append(tip);
const follow = () => { scrollTo(0, 0); show(location.hash.slice(1)); };
for (const link of $$("[data-operation]")) link.href = `#operations/${encodeURIComponent(link.dataset.operation)}`;
addEventListener("hashchange", follow);
for (const query of [phone, desktop]) query.addEventListener("change", () => draw($("section.shown")));
show(location.hash.slice(1));
if (typeof DecompressionStream === "undefined") return;
unpack($("#packed").textContent).then((content) => {
  ({ report, charts, views, leads } = content);
  all = charts;
  shown = report;
  if ($("#ipu")) {
    $(".ipus").hidden = false;
    $("#ipu").addEventListener("change", ({ target }) => choose(target.selectedIndex - 1));
  }
  report.memory_categories = content.categories;
  const library = document.createElement("script");
  library.textContent = content.library;
  document.head.append(library);
  sortable();
  mapped();
  show(location.hash.slice(1));
  document.documentElement.dataset.ready = "yes";
});
