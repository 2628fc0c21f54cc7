// One tile: its arrays at its peak, its vertices, and what it receives in exchanges.
const rowsOfTile = () => (phone.matches ? 10 : 40);

function rest(rows, most, columns, words) {
  if (rows.length <= most) return [];
  const line = element("tr"), title = element("th", words(rows.slice(most)), "note");
  title.colSpan = columns;
  line.append(title);
  return [line];
}

function arraysOn(shown, tile) {
  const at = shown.tiles[tile].peak_at;
  return shown.liveness.tensors
    .filter((tensor) => tensor.always_live || (tensor.first <= at && at <= tensor.last))
    .map((tensor) => [tensor, bytesOn(tensor.place, tile)])
    .filter(([, bytes]) => bytes)
    .sort(([, one], [, other]) => other - one);
}

function arrayRow(categories, [tensor, bytes]) {
  const line = element("tr"), category = element("td");
  category.append(element("i", "", `dot category-${categories.indexOf(tensor.category)}`), tensor.category);
  line.append(heading(tensor.name, tensor.source), cell(tensor.layer), cell(tensor.shape), category);
  line.append(cell(number.format(bytes), "n"), cell(number.format(tensor.bytes), "n"), cell(number.format(tensor.place[3]), "n"));
  return line;
}

function vertexRow(row) {
  const line = element("tr"), place = cell("", "n"), unit = cell(row.unit + (row.method ? " " : ""));
  place.append(link(row.number, `trace/${row.number}`));
  if (row.method) unit.append(element("small", row.method));
  line.append(place, heading(row.name, row.source), unit, cell(row.dtype), cell(number.format(row.runs), "n"), cell(number.format(row.compute), "n"));
  return line;
}

// The arrays that a compute set reads and of which other tiles hold a part, with the tiles that hold them.
function received(shown, work, tile) {
  const tensors = work.reads.map((at) => shown.liveness.tensors[at]).filter((tensor) => bytesOn(tensor.place, tile) < tensor.bytes);
  return tensors.map((tensor) => {
    const tiles = rangesOf(tensor.place).map(([begin, end]) => (end - begin === 1 ? number.format(begin) : `${number.format(begin)} to ${number.format(end - 1)}`));
    return `${tensor.name} from tile${tensor.place[3] === 1 ? "" : "s"} ${tiles.join(" and ")}`;
  }).join("; ");
}

function exchangeRow(shown, tile, [row, work]) {
  const line = element("tr"), place = cell("", "n");
  place.append(link(row.number, `trace/${row.number}`));
  line.append(place, heading(row.name, row.source), cell(number.format(row.runs * work.received_bytes), "n"), cell(number.format(row.exchange), "n"));
  line.append(cell(received(shown, work, tile)));
  return line;
}

// Fills the view of a tile from the report of an IPU; categories are in the order of their colours.
function showTile(shown, categories, tile) {
  const most = rowsOfTile();
  const steps = stepsOf(shown), { peak_bytes: peak, peak_at: at } = shown.tiles[tile];
  const arrays = arraysOn(shown, tile), works = shown.work.map((work, step) => [steps[step], work]).filter(([, work]) => covers(work.place, tile));
  const fixed = ["code", "vertex state"].map((name) => [name, (shown.memory.categories[name] || [])[tile] || 0]);
  const named = sum(arrays.map(([, bytes]) => bytes)), other = peak - named - sum(fixed.map(([, bytes]) => bytes));
  $("#tile").value = tile;
  const parts = [["arrays", named], ["smaller arrays that the report does not name", other], ...fixed].filter(([, bytes]) => bytes);
  $("#tile-sum").textContent = `At its peak, ${steps.length ? `compute set ${number.format(at)}, ${steps[at].name}` : "the start"}: ` +
    `${parts.map(([name, bytes]) => `${number.format(bytes)} bytes of ${name}`).join(" + ")} = ${number.format(peak)} bytes of ${number.format(shown.memory.limit_bytes)}.`;
  const bytesOf = (rows) => `${number.format(rows.length)} smaller ones, ${number.format(sum(rows.map(([, bytes]) => bytes)))} bytes`;
  fill($("#tile-arrays"), [
    ...arrays.slice(0, most).map((each) => arrayRow(categories, each)), ...rest(arrays, most, 7, bytesOf),
  ]);
  const vertices = works.map(([row]) => row).sort((one, another) => another.compute - one.compute);
  const cycles = sum(vertices.map((row) => row.compute)), all = sum(steps.map((row) => row.compute));
  $("#tile-work").textContent = `It computes in ${number.format(vertices.length)} of ${number.format(steps.length)} compute sets: at most ` +
    `${number.format(cycles)} of ${number.format(all)} cycles of compute. Cycles are those of the slowest tile of a compute set.`;
  const cyclesOf = (rows) => `${number.format(rows.length)} shorter ones, ${number.format(sum(rows.map((row) => row.compute)))} cycles`;
  fill($("#tile-vertices"), [...vertices.slice(0, most).map(vertexRow), ...rest(vertices, most, 6, cyclesOf)]);
  const exchanges = works.filter(([, work]) => work.received_bytes).sort(([a, one], [b, another]) => b.runs * another.received_bytes - a.runs * one.received_bytes);
  const receivedIn = (rows) => sum(rows.map(([row, work]) => row.runs * work.received_bytes));
  $("#tile-received").textContent = exchanges.length
    ? `It receives ${number.format(receivedIn(exchanges))} bytes in ${number.format(exchanges.length)} exchanges.` : "It receives nothing from other tiles.";
  const smaller = (rows) => `${number.format(rows.length)} smaller ones, ${number.format(receivedIn(rows))} bytes`;
  fill($("#tile-exchanges"), [
    ...exchanges.slice(0, most).map((each) => exchangeRow(shown, tile, each)), ...rest(exchanges, most, 5, smaller),
  ]);
}
