// Convolutions as plain sums, for any stride and any number of channels.
//
// The pixels of one row of a window and their channels are adjacent in memory, so that one row of
// the result is a sum of matrix products of overlapping slices of padded rows. The results of a few
// pixels stay in registers over the whole window.

#ifndef FEDJAX_SKEW_DIRECT_H_
#define FEDJAX_SKEW_DIRECT_H_

#include <algorithm>
#include <cstring>

#include "simd.h"

namespace fedjax_skew {

// Copies one image [height, width, channels] into a padded one, without its padding.
inline void Place(const float* x, int64_t height, int64_t width, int64_t channels, int64_t top,
                  int64_t left, int64_t padded_height, int64_t padded_width, float* out) {
  const int64_t first_row = std::max<int64_t>(0, -top), first_column = std::max<int64_t>(0, -left);
  const int64_t rows = std::min(height, padded_height - top);
  const int64_t columns = std::min(width, padded_width - left) - first_column;
  if (columns <= 0) return;
  for (int64_t h = first_row; h < rows; ++h)
    std::memcpy(out + ((h + top) * padded_width + left + first_column) * channels,
                x + (h * width + first_column) * channels, 4 * columns * channels);
}

// The same with a padding of zeros.
inline void Pad(const float* x, int64_t height, int64_t width, int64_t channels, int64_t top,
                int64_t left, int64_t padded_height, int64_t padded_width, float* out) {
  std::fill(out, out + padded_height * padded_width * channels, 0.0f);
  Place(x, height, width, channels, top, left, padded_height, padded_width, out);
}

// One row of a result: pixel t starts at x + t * x_step and is written to y + t * y_step.
struct Row {
  const float* x;
  int64_t x_step, x_row;  // Floats between pixels of the result, and between rows of the window.
  const float* kernel;    // [window_rows, window_floats, features]
  int64_t window_rows, window_floats, features;
  float* y;
  int64_t y_step;
};

template <int kRows, int kVectors>
inline void DirectPart(const Row& r, int64_t t0, int64_t f) {
  Vector sum[kRows][kVectors] = {};
  for (int64_t i = 0; i < r.window_rows; ++i) {
    const float* x = r.x + t0 * r.x_step + i * r.x_row;
    const float* kernel = r.kernel + i * r.window_floats * r.features + f;
    for (int64_t k = 0; k < r.window_floats; ++k) {
      Vector row[kVectors];
      for (int n = 0; n < kVectors; ++n) row[n] = Load(kernel + k * r.features + n * kLanes);
      for (int t = 0; t < kRows; ++t)
        for (int n = 0; n < kVectors; ++n) sum[t][n] += x[t * r.x_step + k] * row[n];
    }
  }
  for (int t = 0; t < kRows; ++t)
    for (int n = 0; n < kVectors; ++n)
      Store(r.y + (t0 + t) * r.y_step + f + n * kLanes, sum[t][n]);
}

template <int kRows>
void DirectRow(const Row& r, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kRows) {
    const int64_t t = std::max<int64_t>(0, std::min<int64_t>(begin, count - kRows));
    int64_t f = 0;
    for (; f + 2 * kLanes <= r.features; f += 2 * kLanes) DirectPart<kRows, 2>(r, t, f);
    for (; f < r.features; f += kLanes) DirectPart<kRows, 1>(r, t, f);
  }
}

// The last group of pixels overlaps the one before it. `rows` is the size of the groups.
template <int kRows = kMaxRows>
void DirectRow(const Row& r, int64_t count, int64_t rows) {
  if (rows == kRows) {
    DirectRow<kRows>(r, count);
  } else if constexpr (kRows > 1) {
    DirectRow<kRows - 1>(r, count, rows);
  }
}

// Returns the size of groups, at most `most`, that computes the fewest pixels twice.
inline int64_t GroupSize(int64_t count, int64_t most = kMaxRows, int64_t fewest = kMinRows) {
  if (count <= most) return count;
  int64_t best = most, least = (count + best - 1) / best * best;
  for (int64_t size = most - 1; size >= fewest; --size) {
    const int64_t total = (count + size - 1) / size * size;
    if (total < least) best = size, least = total;
  }
  return best;
}

inline int64_t PaddedHeight(const Shape& s) { return (s.rows - 1) * s.stride + s.size; }
inline int64_t PaddedWidth(const Shape& s) { return (s.columns - 1) * s.stride + s.size; }

inline int64_t DirectConvFloats(const Shape& s) {
  return PaddedHeight(s) * PaddedWidth(s) * s.channels;
}

inline void DirectConv(const float* x, const float* kernel, const Shape& s, float* buffer,
                       float* y) {
  const int64_t width = PaddedWidth(s), group = GroupSize(s.columns);
  for (int64_t n = 0; n < s.images; ++n) {
    Pad(x + n * s.height * s.width * s.channels, s.height, s.width, s.channels, s.top, s.left,
        PaddedHeight(s), width, buffer);
    for (int64_t h = 0; h < s.rows; ++h)
      DirectRow({buffer + h * s.stride * width * s.channels, s.stride * s.channels,
                 width * s.channels, kernel, s.size, s.size * s.channels, s.features,
                 y + (n * s.rows + h) * s.columns * s.features, s.features},
                s.columns, group);
  }
}

// dx[h] is the sum over i of dy[(h + top - i) / stride] kernel[i], where the division has no
// remainder. So the rows and columns of dx with the same remainder are a convolution of dy with
// every stride-th entry of the kernel, in reverse order.
struct Phase {
  Phase(int64_t remainder, int64_t count, int64_t before, const Shape& s)
      : first((remainder - before % s.stride + s.stride) % s.stride),
        size((s.size - remainder + s.stride - 1) / s.stride),
        offset((first + before) / s.stride),
        count(count > first ? (count - first + s.stride - 1) / s.stride : 0),
        remainder(remainder) {}

  int64_t first;      // The first row of dx.
  int64_t size;       // Entries of the kernel; can be 0.
  int64_t offset;     // The row of dy for the first row of dx and the first entry of the kernel.
  int64_t count;      // Number of rows of dx.
  int64_t remainder;  // The first entry of the kernel.
};

inline int64_t DirectImageGradientFloats(const Shape& s) {
  const int64_t rows = (s.height + s.top) / s.stride + s.size + 1;
  const int64_t columns = (s.width + s.left) / s.stride + s.size + 1;
  return s.size * s.size * s.channels * s.features + rows * columns * s.features;
}

inline void DirectImageGradient(const float* dy, const float* kernel, const Shape& s,
                                float* buffer, float* dx) {
  float* flipped = buffer;
  float* padded = buffer + s.size * s.size * s.channels * s.features;
  for (int64_t a = 0; a < s.stride; ++a)
    for (int64_t b = 0; b < s.stride; ++b) {
      const Phase down(a, s.height, s.top, s), across(b, s.width, s.left, s);
      if (down.count == 0 || across.count == 0) continue;
      float* to = flipped;  // [down.size, across.size, features, channels]
      for (int64_t i = down.size - 1; i >= 0; --i)
        for (int64_t j = across.size - 1; j >= 0; --j) {
          const float* from = kernel + ((a + i * s.stride) * s.size + b + j * s.stride) *
                                           s.channels * s.features;
          for (int64_t f = 0; f < s.features; ++f)
            for (int64_t c = 0; c < s.channels; ++c) *to++ = from[c * s.features + f];
        }
      const int64_t height = down.count + std::max<int64_t>(down.size - 1, 0);
      const int64_t width = across.count + std::max<int64_t>(across.size - 1, 0);
      const int64_t group = GroupSize(across.count);
      for (int64_t n = 0; n < s.images; ++n) {
        Pad(dy + n * s.rows * s.columns * s.features, s.rows, s.columns, s.features,
            down.size - 1 - down.offset, across.size - 1 - across.offset, height, width, padded);
        for (int64_t h = 0; h < down.count; ++h)
          DirectRow({padded + h * width * s.features, s.features, width * s.features, flipped,
                     down.size, across.size * s.features, s.channels,
                     dx + ((n * s.height + down.first + h * s.stride) * s.width + across.first) *
                              s.channels,
                     s.stride * s.channels},
                    across.count, group);
      }
    }
}

// dkernel[k, f] += sum over the pixels of a result of x[k] dy[f], for kCount adjacent entries k.
template <int kCount, int kVectors>
inline void DirectOuterPart(const float* x, int64_t x_row, const float* dy, const Shape& s,
                            float* dkernel) {
  Vector sum[kCount][kVectors];
  for (int k = 0; k < kCount; ++k)
    for (int n = 0; n < kVectors; ++n) sum[k][n] = Load(dkernel + k * s.features + n * kLanes);
  for (int64_t h = 0; h < s.rows; ++h)
    for (int64_t w = 0; w < s.columns; ++w) {
      const float* pixel = x + h * s.stride * x_row + w * s.stride * s.channels;
      Vector row[kVectors];
      for (int n = 0; n < kVectors; ++n)
        row[n] = Load(dy + (h * s.columns + w) * s.features + n * kLanes);
      for (int k = 0; k < kCount; ++k)
        for (int n = 0; n < kVectors; ++n) sum[k][n] += pixel[k] * row[n];
    }
  for (int k = 0; k < kCount; ++k)
    for (int n = 0; n < kVectors; ++n) Store(dkernel + k * s.features + n * kLanes, sum[k][n]);
}

template <int kCount = kLanes / 2>
void DirectOuter(const float* x, int64_t x_row, const float* dy, const Shape& s, int64_t count,
                 float* dkernel) {
  int64_t k = 0;
  for (; k + kCount <= count; k += kCount) {
    int64_t f = 0;
    for (; f + 2 * kLanes <= s.features; f += 2 * kLanes)
      DirectOuterPart<kCount, 2>(x + k, x_row, dy + f, s, dkernel + k * s.features + f);
    for (; f < s.features; f += kLanes)
      DirectOuterPart<kCount, 1>(x + k, x_row, dy + f, s, dkernel + k * s.features + f);
  }
  if constexpr (kCount > 1) {
    DirectOuter<kCount / 2>(x + k, x_row, dy, s, count - k, dkernel + k * s.features);
  }
}

inline void DirectKernelGradient(const float* x, const float* dy, const Shape& s, float* buffer,
                                 float* dkernel) {
  const int64_t width = PaddedWidth(s), floats = s.size * s.channels;
  std::fill(dkernel, dkernel + s.size * floats * s.features, 0.0f);
  for (int64_t n = 0; n < s.images; ++n) {
    Pad(x + n * s.height * s.width * s.channels, s.height, s.width, s.channels, s.top, s.left,
        PaddedHeight(s), width, buffer);
    for (int64_t i = 0; i < s.size; ++i)
      DirectOuter(buffer + i * width * s.channels, width * s.channels,
                  dy + n * s.rows * s.columns * s.features, s, floats,
                  dkernel + i * floats * s.features);
  }
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_DIRECT_H_
