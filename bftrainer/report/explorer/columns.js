// Columns of numbers and texts, which the page holds as one deflated text.

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The numbers of a column: sums of differences, whose bytes lie in four planes, times the column's step.
function numbers(bytes, column) {
  const count = column.count, values = new Float64Array(count);
  let sum = 0;
  for (let row = 0, at = column.at; row < count; row += 1, at += 1) {
    sum = (sum + (bytes[at] | bytes[at + count] << 8 | bytes[at + 2 * count] << 16 | bytes[at + 3 * count] << 24)) | 0;
    values[row] = sum === -2147483648 ? NaN : sum * column.step;
  }
  return values;
}

function texts(bytes, column) {
  return new TextDecoder().decode(bytes.subarray(column.at, column.at + column.bytes)).split("\n");
}

// The data with columns in place of what refers to them.
function unpacked(bytes, value) {
  if (value && typeof value === "object") {
    if (Array.isArray(value)) { return value.map((each) => unpacked(bytes, each)); }
    if ("at" in value) { return "bytes" in value ? texts(bytes, value) : numbers(bytes, value); }
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, unpacked(bytes, each)]));
  }
  return value;
}

// The first row whose value is greater than a limit; values ascend from one row to another.
function firstAbove(values, limit, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) { high = middle; } else { low = middle + 1; }
  }
  return low;
}
