// The gradient of a dense layer's weights.

#ifndef FEDJAX_SKEW_DENSE_H_
#define FEDJAX_SKEW_DENSE_H_

#include "direct.h"
#include "simd.h"

namespace fedjax_skew {

// out[k, n] = sum over b of x[b, k] dy[b, n].
struct DenseShape {
  int64_t rows, inputs, outputs;  // Of x and dy.
};

template <typename V, int kInputs, int kVectors>
inline void DensePart(const float* x, const float* dy, int64_t dy_row, const DenseShape& s,
                      float* out) {
  constexpr int lanes = sizeof(V) / 4;
  V sum[kInputs][kVectors] = {};
  for (int64_t b = 0; b < s.rows; ++b, x += s.inputs, dy += dy_row) {
    V row[kVectors];
    for (int v = 0; v < kVectors; ++v) std::memcpy(&row[v], dy + v * lanes, sizeof(V));
    for (int k = 0; k < kInputs; ++k)
      for (int v = 0; v < kVectors; ++v) sum[k][v] += x[k] * row[v];
  }
  for (int k = 0; k < kInputs; ++k)
    for (int v = 0; v < kVectors; ++v)
      std::memcpy(out + k * s.outputs + v * lanes, &sum[k][v], sizeof(V));
}

constexpr int kPanel = 2 * kLanes;

inline int64_t DenseFloats(const DenseShape& s) { return s.rows * s.outputs; }

// Computes groups of kInputs inputs; the last one overlaps the one before it.
template <int kInputs>
void DenseGroups(const float* x, const float* dy, const DenseShape& s, const float* panels,
                 float* out) {
  typedef float Eight __attribute__((vector_size(32), aligned(4)));
  const int64_t end = s.outputs / kPanel * kPanel, row = s.outputs;
  for (int64_t begin = 0; begin < s.inputs; begin += kInputs) {
    const int64_t k = std::max<int64_t>(0, std::min<int64_t>(begin, s.inputs - kInputs));
    float* to = out + k * row;
    for (int64_t n = 0; n < end; n += kPanel)
      DensePart<Vector, kInputs, 2>(x + k, panels + n * s.rows, kPanel, s, to + n);
    for (int64_t n = end; n < row; n += kLanes) {
      const int64_t rest = row - n;
      if (rest > 8) {
        const int64_t at = std::min(n, row - kLanes);
        DensePart<Vector, kInputs, 1>(x + k, dy + at, row, s, to + at);
      } else {
        DensePart<Eight, kInputs, 1>(x + k, dy + row - 8, row, s, to + row - 8);
      }
    }
  }
}

// `group` is the size of the groups of inputs.
template <int kInputs = kMaxRows>
void DenseGroups(const float* x, const float* dy, const DenseShape& s, const float* panels,
                 float* out, int64_t group) {
  if (group == kInputs) {
    DenseGroups<kInputs>(x, dy, s, panels, out);
  } else if constexpr (kInputs > 1) {
    DenseGroups<kInputs - 1>(x, dy, s, panels, out, group);
  }
}

inline void DenseGradient(const float* x, const float* dy, const DenseShape& s, float* buffer,
                          float* out) {
  // Two vectors of every row are moved next to each other, where they stay in the cache.
  for (int64_t n = 0; n + kPanel <= s.outputs; n += kPanel)
    for (int64_t b = 0; b < s.rows; ++b)
      std::memcpy(buffer + n * s.rows + b * kPanel, dy + b * s.outputs + n, 4 * kPanel);
  DenseGroups(x, dy, s, buffer, out, GroupSize(s.inputs));
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_DENSE_H_
