// What the reference implementation of GraphQL makes of requests: a line {"query", "operationName"} in, a line out: null where
// nothing would run, else the kind, name and root fields of what would.
const { parse, Kind } = require(process.argv[2]);

function choose(document, name) {
  const operations = document.definitions.filter((d) => d.kind === Kind.OPERATION_DEFINITION);
  if (document.definitions.some((d) => d.kind !== Kind.OPERATION_DEFINITION && d.kind !== Kind.FRAGMENT_DEFINITION)) return null;
  const names = operations.map((o) => o.name?.value ?? "");
  if (new Set(names).size !== names.length || (names.includes("") && names.length > 1)) return null;
  if (!name) return operations.length === 1 ? operations[0] : null;
  return operations.find((o) => o.name?.value === name) ?? null;
}

function fields(document, operation) {
  const fragments = new Map();
  for (const d of document.definitions) {
    if (d.kind !== Kind.FRAGMENT_DEFINITION) continue;
    if (fragments.has(d.name.value)) return null;
    fragments.set(d.name.value, d);
  }
  const found = new Set();
  const visit = (selections, path) =>
    selections.every((s) => {
      if (s.kind === Kind.FIELD) return found.add(s.name.value);
      if (s.kind === Kind.INLINE_FRAGMENT) return visit(s.selectionSet.selections, path);
      const name = s.name.value;
      if (path.includes(name) || !fragments.has(name)) return false;
      return visit(fragments.get(name).selectionSet.selections, [...path, name]);
    });
  return visit(operation.selectionSet.selections, []) ? [...found] : null;
}

function judge({ query, operationName }) {
  let document;
  try {
    document = parse(query);
  } catch {
    return null;
  }
  const operation = choose(document, operationName);
  const found = operation && fields(document, operation);
  return found && found.map((field) => [operation.operation, operation.name?.value ?? "", field]);
}

for (const line of require("fs").readFileSync(0, "utf8").split("\n"))
  if (line) console.log(JSON.stringify(judge(JSON.parse(line))));
