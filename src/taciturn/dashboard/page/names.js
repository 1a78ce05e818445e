// What lines are called: by their run where several are drawn, by numbers where names are many or long.
const MANY = 8; // names that an eye finds its way among

export function lineNames(lines, fits) {
  const runs = new Set(lines.map((line) => line.run));
  const labels = new Set(lines.map((line) => line.label));
  const cut = sharedBeginning([...runs]);
  const names = lines.map(({ run, label }) => {
    const short = run.slice(cut) || run;
    if (runs.size === 1) return label;
    return labels.size === 1 ? short : `${short}: ${label}`;
  });
  const numbered = names.length > MANY || !names.every(fits);
  return { names, numbered };
}

const taken = new Map(); // line -> its place among the colours

// A line keeps its colour and its number while others come and go.
export function keptPlaces(keys) {
  for (const key of [...taken.keys()]) if (!keys.includes(key)) taken.delete(key);
  const free = new Set(keys.map((_, i) => i));
  for (const place of taken.values()) free.delete(place);
  const next = [...free].values();
  for (const key of keys) if (!taken.has(key)) taken.set(key, next.next().value);
  return keys.map((key) => taken.get(key));
}

// The folders that all names begin with, which tell nothing apart.
function sharedBeginning(names) {
  if (names.length < 2) return 0;
  let shared = names[0].lastIndexOf("/") + 1;
  while (shared > 0 && !names.every((name) => name.startsWith(names[0].slice(0, shared)))) {
    shared = names[0].lastIndexOf("/", shared - 2) + 1;
  }
  return shared;
}
