// The program as a tree of passes, loops, branches and layers; a node's rows are made when it is opened.
function shares(node) {
  const bar = element("span", "", "share");
  for (const part of ["compute", "exchange", "sync"]) {
    if (!node[part]) continue;
    const made = element("i", "", part);
    made.style.flexGrow = node[part];
    made.title = `${part}: ${number.format(node[part])} cycles`;
    bar.append(made);
  }
  return bar;
}

function leaf(row, whole) {
  const line = element("p", "", "leaf"), name = element("span");
  name.append(link(row.number, `trace/${row.number}`), ` ${row.name}`);
  if (row.source) name.append(element("small", ` ${row.source.split("/").pop()}`));
  line.append(name, shares(row), element("b", `${number.format(row.cycles)}, ${percent(row.cycles / whole)}`));
  return line;
}

// What is inside a node, in the order in which it runs: its children, and the compute sets between them.
function inside(node, rows, whole) {
  const made = [];
  let at = node.begin;
  for (const child of node.children) {
    made.push(...rows.slice(at, child.begin).map((row) => leaf(row, whole)), branch(child, rows, whole));
    at = child.end;
  }
  return [...made, ...rows.slice(at, node.end).map((row) => leaf(row, whole))];
}

function branch(node, rows, whole) {
  const made = element("details", "", node.kind), head = element("summary"), name = element("span", node.name);
  const count = node.end - node.begin;
  name.append(element("small", ` ${number.format(count)} compute set${count === 1 ? "" : "s"}`));
  head.append(name, shares(node), element("b", `${number.format(node.cycles)}, ${percent(node.cycles / whole)}`));
  made.append(head);
  made.addEventListener("toggle", () => {
    if (made.open && made.children.length === 1) {
      const content = element("div");
      content.append(...inside(node, rows, whole));
      made.append(content);
    }
  });
  return made;
}

function showTree(shown) {
  const whole = Math.max(1, shown.tree.cycles), rows = stepsOf(shown);
  $("#tree").replaceChildren(...inside(shown.tree, rows, whole));
  for (const each of $$("#tree > details")) each.open = each.classList.contains("pass") || each.classList.contains("loop");
}
