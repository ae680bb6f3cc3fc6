// Matrix products of dense layers.

#ifndef FEDJAX_SKEW_DENSE_H_
#define FEDJAX_SKEW_DENSE_H_

#include <algorithm>
#include <cstring>

#include "direct.h"
#include "simd.h"

namespace fedjax_skew {

// out[i, n] = sum over k of a[i, k] b[k, n]. If `transposed`, `a` is stored as [inner, rows].
struct Product {
  const float* a;
  const float* b;
  int64_t rows, inner, columns;
  bool transposed;
  float* out;
};

// Computes kRows adjacent rows of adjacent columns, whose sums stay in the registers.
template <typename V, int kRows, int kVectors, bool kTransposed>
inline void ProductPart(const Product& p, int64_t row, int64_t column) {
  constexpr int lanes = sizeof(V) / 4;
  const int64_t a_row = kTransposed ? 1 : p.inner, a_next = kTransposed ? p.rows : 1;
  const float *a = p.a + row * a_row, *b = p.b + column;
  float* out = p.out + row * p.columns + column;
  V sum[kRows][kVectors] = {};
  for (int64_t k = 0; k < p.inner; ++k, a += a_next, b += p.columns) {
    V line[kVectors];
    for (int v = 0; v < kVectors; ++v) std::memcpy(&line[v], b + v * lanes, sizeof(V));
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v) sum[i][v] += a[i * a_row] * line[v];
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v)
      std::memcpy(out + i * p.columns + v * lanes, &sum[i][v], sizeof(V));
}

// Computes adjacent columns of all rows. The last group of rows overlaps the one before it.
template <typename V, int kRows, int kVectors, bool kTransposed>
inline void ProductColumns(const Product& p, int64_t column) {
  for (int64_t begin = 0; begin < p.rows; begin += kRows)
    ProductPart<V, kRows, kVectors, kTransposed>(p, std::min(begin, p.rows - kRows), column);
}

// The last vector of columns overlaps the one before it.
template <int kRows, bool kTransposed>
void ProductRows(const Product& p) {
  typedef float Eight __attribute__((vector_size(32), aligned(4)));
  int64_t n = 0;
  for (; n + 2 * kLanes <= p.columns; n += 2 * kLanes)
    ProductColumns<Vector, kRows, 2, kTransposed>(p, n);
  for (; p.columns - n > 8; n += kLanes)
    ProductColumns<Vector, kRows, 1, kTransposed>(p, std::min(n, p.columns - kLanes));
  if (n < p.columns) ProductColumns<Eight, kRows, 1, kTransposed>(p, p.columns - 8);
}

// `group` is the size of the groups of rows.
template <int kRows = kMaxRows>
void ProductRows(const Product& p, int64_t group) {
  if (group == kRows) {
    p.transposed ? ProductRows<kRows, true>(p) : ProductRows<kRows, false>(p);
  } else if constexpr (kRows > 1) {
    ProductRows<kRows - 1>(p, group);
  }
}

// There are at least as many columns as numbers in a vector.
inline void Multiply(const Product& p) {
  if (p.rows > 0) ProductRows(p, GroupSize(p.rows));
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_DENSE_H_
