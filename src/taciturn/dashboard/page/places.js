// Where names go that belong at `ends`: as near as can be between low and high, `apart` between any two.
// Names that touch move together, to the mean of where they belong.
export function places(ends, apart, low, high) {
  const order = ends.map((end, i) => i).sort((a, b) => ends[a] - ends[b]);
  const blocks = [];
  order.forEach((index, i) => {
    let block = { total: ends[index] - i * apart, count: 1 };
    while (blocks.length && mean(blocks.at(-1)) > mean(block)) {
      const above = blocks.pop();
      block = { total: block.total + above.total, count: block.count + above.count };
    }
    blocks.push(block);
  });
  const found = new Array(ends.length);
  const top = Math.max(low, high - apart * (ends.length - 1));
  let i = 0;
  for (const block of blocks) {
    for (let n = 0; n < block.count; n += 1, i += 1) {
      found[order[i]] = Math.min(top, Math.max(low, mean(block))) + i * apart;
    }
  }
  return found;
}

const mean = ({ total, count }) => total / count;
