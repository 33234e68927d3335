// Heights of many rows of which few are known: sums and searches in logarithmic time.

/** The heights of a list. A row that was not measured has the estimate. */
export class Heights {
  private tree: Float64Array;
  private known: Float64Array;
  private capacity = 0;
  length = 0;

  constructor(
    length: number,
    private readonly estimate: number,
  ) {
    this.tree = new Float64Array(1);
    this.known = new Float64Array(0);
    this.resize(length);
  }

  /** Changes the number of rows; measured heights of those that stay are kept. */
  resize(length: number): void {
    if (length <= this.capacity) {
      for (let i = length; i < this.length; i++) this.set(i, 0);
      for (let i = this.length; i < length; i++) this.set(i, this.estimate);
      this.length = length;
      return;
    }
    const capacity = Math.max(64, length, Math.min(this.capacity * 2, length + 100_000));
    const known = new Float64Array(capacity);
    known.set(this.known.subarray(0, this.length));
    known.fill(this.estimate, this.length, length);
    const tree = new Float64Array(capacity + 1);
    for (let i = 1; i <= capacity; i++) {
      tree[i] = (tree[i] ?? 0) + (known[i - 1] ?? 0);
      const parent = i + (i & -i);
      if (parent <= capacity) tree[parent] = (tree[parent] ?? 0) + (tree[i] ?? 0);
    }
    this.known = known;
    this.tree = tree;
    this.capacity = capacity;
    this.length = length;
  }

  /** The height of a row. */
  of(index: number): number {
    return this.known[index] ?? this.estimate;
  }

  /** Sets a measured height and returns by how much it differs. */
  set(index: number, height: number): number {
    const change = height - (this.known[index] ?? 0);
    if (change === 0) return 0;
    this.known[index] = height;
    for (let i = index + 1; i <= this.capacity; i += i & -i) this.tree[i] = (this.tree[i] ?? 0) + change;
    return change;
  }

  /** The sum of the heights before a row. */
  before(index: number): number {
    let sum = 0;
    for (let i = Math.min(index, this.capacity); i > 0; i -= i & -i) sum += this.tree[i] ?? 0;
    return sum;
  }

  /** The height of all rows. */
  get total(): number {
    return this.before(this.length);
  }

  /** The row at a distance from the top. */
  at(offset: number): number {
    let index = 0;
    let rest = offset;
    let step = 1;
    while (step * 2 <= this.capacity) step *= 2;
    for (; step > 0; step = step >> 1) {
      const next = index + step;
      if (next <= this.capacity && (this.tree[next] ?? 0) <= rest) {
        index = next;
        rest -= this.tree[next] ?? 0;
      }
    }
    return Math.max(0, Math.min(index, this.length - 1));
  }
}
