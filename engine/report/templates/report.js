"use strict";
// The page is complete without this: here charts begin to answer, sections become tabs and tables can be sorted.
(() => {
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

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // Tabs -----------------------------------------------------------------------------------------------------------
  const sections = $$("main > section");
  let charts = {};
  const drawn = new Set();

  function show(key) {
    const chosen = sections.find((section) => section.id === key) || sections[0];
    for (const section of sections) section.classList.toggle("shown", section === chosen);
    for (const link of $$("nav a")) {
      if (link.hash === `#${chosen.id}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    draw(chosen);
  }

  // Charts ---------------------------------------------------------------------------------------------------------
  const tip = element("div", "", "tip");
  tip.hidden = true;

  function tell(_, event, item, value) {
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

  function draw(section) {
    if (!window.vegaEmbed) return;
    for (const figure of $$("figure[data-chart]", section)) {
      const name = figure.dataset.chart;
      if (drawn.has(name) || !charts[name]) continue;
      drawn.add(name);
      const drawing = $(".drawing", figure);
      const place = element("div", "", "drawing");
      drawing.before(place);
      const options = { mode: "vega-lite", renderer: "svg", actions: false, defaultStyle: false, tooltip: tell };
      vegaEmbed(place, charts[name], options).then(({ view }) => {
        drawing.remove();
        if (name === "live-bytes") view.addSignalListener("step", (_, value) => alive(value && value.step && value.step[0]));
      });
    }
  }

  // Tables ---------------------------------------------------------------------------------------------------------
  let report = null;
  const MOST = 500;
  const sorting = { key: "cycles", up: false };

  function cell(text, name = "") {
    return element("td", text, name);
  }

  function operations() {
    const words = $("#filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (row) => words.every((word) => `${row.name} ${row.layer} ${row.unit} ${row.method} ${row.dtype}`.toLowerCase().includes(word));
    const found = report.operations.filter(matches);
    const sign = sorting.up ? 1 : -1;
    const value = (row) => (row[sorting.key] === null ? -1 : row[sorting.key]);
    found.sort((a, b) => (value(a) < value(b) ? -sign : value(a) > value(b) ? sign : a.number - b.number));
    const rows = found.slice(0, MOST).map((row) => {
      const line = element("tr");
      const name = element("th", row.name);
      name.scope = "row";
      line.append(cell(row.number, "n"), name);
      const unit = cell(row.unit + (row.method ? " " : ""));
      if (row.method) unit.append(element("small", row.method));
      line.append(unit, cell(row.dtype));
      for (const key of ["tiles", "runs", "cycles", "compute", "exchange"]) line.append(cell(number.format(row[key]), "n"));
      line.append(cell(short(row.flop), "n"), cell(size(row.bytes), "n"));
      line.append(cell(row.peak_share === null ? "" : percent(row.peak_share), "n"));
      return line;
    });
    $("#table tbody").replaceChildren(...rows);
    const cycles = found.reduce((sum, row) => sum + row.cycles, 0);
    $("#shown").textContent = `Showing ${number.format(rows.length)} of ${number.format(report.operations.length)} compute sets; ` +
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
    const found = report.liveness.tensors.filter((tensor) => tensor.always_live || (tensor.first <= step && step <= tensor.last));
    const rows = found.slice(0, 40).map((tensor) => {
      const line = element("tr");
      const name = element("th", tensor.name);
      name.scope = "row";
      const category = element("td");
      category.append(element("i", "", `dot category-${colours.indexOf(tensor.category)}`), tensor.category);
      line.append(name, cell(tensor.layer), cell(tensor.shape), category, cell(number.format(tensor.bytes), "n"));
      if (tensor.always_live) {
        const always = cell("always", "n");
        always.colSpan = 2;
        line.append(always);
      } else line.append(cell(tensor.first, "n"), cell(tensor.last, "n"));
      return line;
    });
    $("#alive tbody").replaceChildren(...rows);
    $("#alive-title").textContent = `Alive at compute set ${number.format(step)}, ${(report.supersteps.length ? report.supersteps : report.operations)[step].name}`;
  }

  // ----------------------------------------------------------------------------------------------------------------
  document.documentElement.classList.add("scripted");
  document.body.append(tip);
  const follow = () => { show(location.hash.slice(1)); scrollTo(0, 0); };
  addEventListener("hashchange", follow);
  show(location.hash.slice(1));
  if (typeof DecompressionStream === "undefined") return;
  unpack($("#packed").textContent).then((content) => {
    ({ report, charts } = content);
    report.memory_categories = content.categories;
    const library = document.createElement("script");
    library.textContent = content.library;
    document.head.append(library);
    sortable();
    for (const section of sections) if (section.classList.contains("shown")) draw(section);
    document.documentElement.dataset.ready = "yes";
  });
})();
