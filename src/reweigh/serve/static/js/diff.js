// Which words of two texts have no partner in the other: what is left of both beside their longest common run of words.

/** For each word of either list, whether the other lacks it. */
export function differences(left, right) {
  const best = table(left, right);
  const marks = [left.map(() => true), right.map(() => true)];
  let i = 0;
  let j = 0;
  while (i < left.length && j < right.length) {
    if (left[i] === right[j]) {
      marks[0][i++] = false;
      marks[1][j++] = false;
    } else if (best[i + 1][j] >= best[i][j + 1]) i++;
    else j++;
  }
  return marks;
}

function table(left, right) {
  const best = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i--)
    for (let j = right.length - 1; j >= 0; j--)
      best[i][j] = left[i] === right[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  return best;
}
