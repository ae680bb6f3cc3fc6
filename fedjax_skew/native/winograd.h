// Winograd's minimal filtering with tiles of 6x6 pixels: F(4x4, 3x3) and F(2x2, 5x5).
//
// A block of the result is A^T [(G g G^T) * (B^T d B)] A for a tile d and a kernel g (Lavin and
// Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, equation 8), with the
// points 0, 1, -1, 2, -2 and infinity for both sizes. The products over channels are matrix
// products of a few tiles at a time, which stay in the cache between the transformations.

#ifndef FEDJAX_SKEW_WINOGRAD_H_
#define FEDJAX_SKEW_WINOGRAD_H_

#include <algorithm>
#include <utility>

#include "simd.h"

namespace fedjax_skew {

constexpr int kTile = 6, kPlaces = kTile * kTile;
#ifdef __AVX512F__
constexpr int kTileRows = 12;  // Tiles in one product.
#else
constexpr int kTileRows = 6;
#endif
constexpr int kTiles = 24;  // Tiles that are transformed together.

alignas(64) inline const float kZeros[kLanes] = {};

// t = B^T d
inline void TransformImage(const Vector d[kTile], Vector t[kTile]) {
  Vector a = d[4] - 4 * d[2], b = d[3] - 4 * d[1], c = d[4] - d[2], e = 2 * (d[3] - d[1]);
  t[0] = 4 * d[0] - 5 * d[2] + d[4];
  t[1] = a + b;
  t[2] = a - b;
  t[3] = c + e;
  t[4] = c - e;
  t[5] = 4 * d[1] - 5 * d[3] + d[5];
}

// d = B t, the transpose of the above.
inline void TransposeImage(const Vector t[kTile], Vector d[kTile]) {
  Vector a = t[1] + t[2], b = t[2] - t[1], c = t[3] + t[4], e = 2 * (t[4] - t[3]);
  d[0] = 4 * t[0];
  d[1] = 4 * b + e + 4 * t[5];
  d[2] = -5 * t[0] - 4 * a - c;
  d[3] = -b - e - 5 * t[5];
  d[4] = t[0] + a + c;
  d[5] = t[5];
}

// y = A^T t
template <int kBlock>
inline void TransformResult(const Vector t[kTile], Vector y[kBlock]) {
  Vector a = t[1] + t[2], b = t[1] - t[2], c = t[3] + t[4], d = t[3] - t[4];
  y[0] = t[0] + a + c;
  if constexpr (kBlock == 2) {
    y[1] = b + 2 * d + t[5];
  } else {
    y[1] = b + 2 * d;
    y[2] = a + 4 * c;
    y[3] = b + 8 * d + t[5];
  }
}

// t = A y, the transpose of the above.
template <int kBlock>
inline void TransposeResult(const Vector y[kBlock], Vector t[kTile]) {
  Vector a = y[0], b = y[1], c = y[0], d = 2 * y[1];
  if constexpr (kBlock == 4) a += y[2], b += y[3], c += 4 * y[2], d += 8 * y[3];
  t[0] = y[0];
  t[1] = a + b;
  t[2] = a - b;
  t[3] = c + d;
  t[4] = c - d;
  t[5] = y[kBlock - 1];
}

// The matrix G of a kernel of kSize x kSize.
template <int kSize>
constexpr float KernelEntry(int row, int power) {
  constexpr float point[] = {0, 1, -1, 2, -2}, scale[] = {4, -6, -6, 24, 24};
  if (row == kTile - 1) return power == kSize - 1;
  float value = 1;
  for (int n = 0; n < power; ++n) value *= point[row];
  return value / scale[row];
}

// u = G g G^T for every pair of channels: [kSize, kSize, pairs] to [6, 6, pairs].
template <int kSize>
void TransformKernel(const float* g, int64_t pairs, float* u) {
  for (int64_t p = 0; p < pairs; p += kLanes) {
    Vector half[kTile][kSize];
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kSize; ++j) {
        half[i][j] = Vector{};
        for (int n = 0; n < kSize; ++n)
          half[i][j] += KernelEntry<kSize>(i, n) * Load(g + (n * kSize + j) * pairs + p);
      }
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kTile; ++j) {
        Vector sum{};
        for (int n = 0; n < kSize; ++n) sum += KernelEntry<kSize>(j, n) * half[i][n];
        Store(u + (i * kTile + j) * pairs + p, sum);
      }
  }
}

// g = G^T u G, the transpose of the above.
template <int kSize>
void TransposeKernel(const float* u, int64_t pairs, float* g) {
  for (int64_t p = 0; p < pairs; p += kLanes) {
    Vector half[kSize][kTile];
    for (int i = 0; i < kSize; ++i)
      for (int j = 0; j < kTile; ++j) {
        half[i][j] = Vector{};
        for (int n = 0; n < kTile; ++n)
          half[i][j] += KernelEntry<kSize>(n, i) * Load(u + (n * kTile + j) * pairs + p);
      }
    for (int i = 0; i < kSize; ++i)
      for (int j = 0; j < kSize; ++j) {
        Vector sum{};
        for (int n = 0; n < kTile; ++n) sum += KernelEntry<kSize>(n, j) * half[i][n];
        Store(g + (i * kSize + j) * pairs + p, sum);
      }
  }
}

// The blocks of kBlock x kBlock pixels of all results, in row-major order.
template <int kBlock>
struct Blocks {
  explicit Blocks(const Shape& s)
      : down((s.rows + kBlock - 1) / kBlock),
        across((s.columns + kBlock - 1) / kBlock),
        count(s.images * down * across) {}

  void Find(int64_t block, int64_t* image, int64_t* row, int64_t* column) const {
    *image = block / (down * across);
    *row = block / across % down * kBlock;
    *column = block % across * kBlock;
  }

  int64_t down, across, count;
};

// Writes B^T d B of one tile for every channel: place e goes to v + e * step.
template <int kBlock>
void TransformTile(const float* x, const Shape& s, const Blocks<kBlock>& blocks, int64_t block,
                   float* v, int64_t step) {
  int64_t image, row, column;
  blocks.Find(block, &image, &row, &column);
  row -= s.top, column -= s.left;
  for (int64_t c = 0; c < s.channels; c += kLanes) {
    Vector half[kTile][kTile];
    for (int j = 0; j < kTile; ++j) {
      Vector d[kTile], t[kTile];
      for (int i = 0; i < kTile; ++i) {
        int64_t h = row + i, w = column + j;
        bool inside = h >= 0 && h < s.height && w >= 0 && w < s.width;
        d[i] = Load(inside ? x + ((image * s.height + h) * s.width + w) * s.channels + c : kZeros);
      }
      TransformImage(d, t);
      for (int i = 0; i < kTile; ++i) half[i][j] = t[i];
    }
    for (int i = 0; i < kTile; ++i) {
      Vector t[kTile];
      TransformImage(half[i], t);
      for (int j = 0; j < kTile; ++j) Store(v + (i * kTile + j) * step + c, t[j]);
    }
  }
}

// Adds B v B^T of one tile to the gradient of the images, for every channel.
template <int kBlock>
void AddTile(const float* v, int64_t step, const Shape& s, const Blocks<kBlock>& blocks,
             int64_t block, float* dx) {
  int64_t image, row, column;
  blocks.Find(block, &image, &row, &column);
  row -= s.top, column -= s.left;
  for (int64_t c = 0; c < s.channels; c += kLanes) {
    Vector half[kTile][kTile];
    for (int j = 0; j < kTile; ++j) {
      Vector t[kTile], d[kTile];
      for (int i = 0; i < kTile; ++i) t[i] = Load(v + (i * kTile + j) * step + c);
      TransposeImage(t, d);
      for (int i = 0; i < kTile; ++i) half[i][j] = d[i];
    }
    for (int i = 0; i < kTile; ++i) {
      if (row + i < 0 || row + i >= s.height) continue;
      Vector d[kTile];
      TransposeImage(half[i], d);
      float* out = dx + ((image * s.height + row + i) * s.width + column) * s.channels + c;
      for (int j = 0; j < kTile; ++j)
        if (column + j >= 0 && column + j < s.width)
          Store(out + j * s.channels, Load(out + j * s.channels) + d[j]);
    }
  }
}

// Writes the block A^T m A of a result for every feature.
template <int kBlock>
void WriteBlock(const float* m, int64_t step, const Shape& s, const Blocks<kBlock>& blocks,
                int64_t block, float* y) {
  int64_t image, row, column;
  blocks.Find(block, &image, &row, &column);
  for (int64_t f = 0; f < s.features; f += kLanes) {
    Vector half[kBlock][kTile];
    for (int j = 0; j < kTile; ++j) {
      Vector t[kTile], part[kBlock];
      for (int i = 0; i < kTile; ++i) t[i] = Load(m + (i * kTile + j) * step + f);
      TransformResult<kBlock>(t, part);
      for (int i = 0; i < kBlock; ++i) half[i][j] = part[i];
    }
    for (int i = 0; i < kBlock && row + i < s.rows; ++i) {
      Vector part[kBlock];
      TransformResult<kBlock>(half[i], part);
      float* out = y + ((image * s.rows + row + i) * s.columns + column) * s.features + f;
      for (int j = 0; j < kBlock && column + j < s.columns; ++j)
        Store(out + j * s.features, part[j]);
    }
  }
}

// Writes A dy A^T of one block of the gradient of a result for every feature.
template <int kBlock>
void ReadBlock(const float* dy, const Shape& s, const Blocks<kBlock>& blocks, int64_t block,
               float* m, int64_t step) {
  int64_t image, row, column;
  blocks.Find(block, &image, &row, &column);
  for (int64_t f = 0; f < s.features; f += kLanes) {
    Vector half[kTile][kBlock];
    for (int j = 0; j < kBlock; ++j) {
      Vector part[kBlock], t[kTile];
      for (int i = 0; i < kBlock; ++i) {
        int64_t h = row + i, w = column + j;
        bool inside = h < s.rows && w < s.columns;
        part[i] =
            Load(inside ? dy + ((image * s.rows + h) * s.columns + w) * s.features + f : kZeros);
      }
      TransposeResult<kBlock>(part, t);
      for (int i = 0; i < kTile; ++i) half[i][j] = t[i];
    }
    for (int i = 0; i < kTile; ++i) {
      Vector t[kTile];
      TransposeResult<kBlock>(half[i], t);
      for (int j = 0; j < kTile; ++j) Store(m + (i * kTile + j) * step + f, t[j]);
    }
  }
}

// m[t, f] = sum over c of v[t, c] u[c, f], for kTileRows tiles and kVectors vectors of features.
template <int kVectors>
inline void MultiplyPart(const float* v, const float* u, const Shape& s, float* m) {
  Vector sum[kTileRows][kVectors] = {};
  for (int64_t c = 0; c < s.channels; ++c) {
    Vector row[kVectors];
    for (int n = 0; n < kVectors; ++n) row[n] = Load(u + c * s.features + n * kLanes);
    for (int t = 0; t < kTileRows; ++t)
      for (int n = 0; n < kVectors; ++n) sum[t][n] += v[t * s.channels + c] * row[n];
  }
  for (int t = 0; t < kTileRows; ++t)
    for (int n = 0; n < kVectors; ++n) Store(m + t * s.features + n * kLanes, sum[t][n]);
}

inline void Multiply(const float* v, const float* u, const Shape& s, float* m) {
  int64_t f = 0;
  for (; f + 2 * kLanes <= s.features; f += 2 * kLanes)
    for (int t = 0; t < kTiles; t += kTileRows)
      MultiplyPart<2>(v + t * s.channels, u + f, s, m + t * s.features + f);
  for (; f < s.features; f += kLanes)
    for (int t = 0; t < kTiles; t += kTileRows)
      MultiplyPart<1>(v + t * s.channels, u + f, s, m + t * s.features + f);
}

// du[c, f] += sum over t of v[t, c] m[t, f], for kCount channels and kVectors vectors of features.
template <int kCount, int kVectors>
inline void AddOuterPart(const float* v, const float* m, const Shape& s, float* du) {
  Vector sum[kCount][kVectors];
  for (int c = 0; c < kCount; ++c)
    for (int n = 0; n < kVectors; ++n) sum[c][n] = Load(du + c * s.features + n * kLanes);
  for (int t = 0; t < kTiles; ++t) {
    Vector row[kVectors];
    for (int n = 0; n < kVectors; ++n) row[n] = Load(m + t * s.features + n * kLanes);
    for (int c = 0; c < kCount; ++c)
      for (int n = 0; n < kVectors; ++n) sum[c][n] += v[t * s.channels + c] * row[n];
  }
  for (int c = 0; c < kCount; ++c)
    for (int n = 0; n < kVectors; ++n) Store(du + c * s.features + n * kLanes, sum[c][n]);
}

inline void AddOuter(const float* v, const float* m, const Shape& s, float* du) {
  constexpr int kCount = kLanes / 2;
  int64_t f = 0;
  for (; f + 2 * kLanes <= s.features; f += 2 * kLanes)
    for (int64_t c = 0; c < s.channels; c += kCount)
      AddOuterPart<kCount, 2>(v + c, m + f, s, du + c * s.features + f);
  for (; f < s.features; f += kLanes)
    for (int64_t c = 0; c < s.channels; c += 2 * kCount)
      AddOuterPart<2 * kCount, 1>(v + c, m + f, s, du + c * s.features + f);
}

inline int64_t WinogradFloats(const Shape& s) {
  return kPlaces * (s.channels * s.features + kTiles * (s.channels + s.features));
}

// y = convolution of x with the kernel.
template <int kSize>
void WinogradConv(const float* x, const float* kernel, const Shape& s, float* buffer, float* y) {
  constexpr int kBlock = kTile + 1 - kSize;
  const int64_t pairs = s.channels * s.features;
  const int64_t v_step = kTiles * s.channels, m_step = kTiles * s.features;
  float *u = buffer, *v = u + kPlaces * pairs, *m = v + kPlaces * v_step;
  TransformKernel<kSize>(kernel, pairs, u);
  std::fill(v, m, 0.0f);
  const Blocks<kBlock> blocks(s);
  for (int64_t first = 0; first < blocks.count; first += kTiles) {
    const int count = std::min<int64_t>(kTiles, blocks.count - first);
    for (int t = 0; t < count; ++t)
      TransformTile(x, s, blocks, first + t, v + t * s.channels, v_step);
    for (int e = 0; e < kPlaces; ++e) Multiply(v + e * v_step, u + e * pairs, s, m + e * m_step);
    for (int t = 0; t < count; ++t)
      WriteBlock(m + t * s.features, m_step, s, blocks, first + t, y);
  }
}

// dx = gradient of the images for the gradient dy of the result, with the kernel as
// [size, size, features, channels]: the operations of the convolution transposed. It has as many
// tiles as the convolution, which are fewer than those of the images if there is no padding.
template <int kSize>
void WinogradImageGradient(const float* dy, const float* kernel, const Shape& s, float* buffer,
                           float* dx) {
  constexpr int kBlock = kTile + 1 - kSize;
  const int64_t pairs = s.channels * s.features;
  const int64_t v_step = kTiles * s.channels, m_step = kTiles * s.features;
  float *u = buffer, *v = u + kPlaces * pairs, *m = v + kPlaces * v_step;
  Shape back = s;
  std::swap(back.channels, back.features);
  TransformKernel<kSize>(kernel, pairs, u);
  std::fill(m, m + kPlaces * m_step, 0.0f);
  std::fill(dx, dx + s.images * s.height * s.width * s.channels, 0.0f);
  const Blocks<kBlock> blocks(s);
  for (int64_t first = 0; first < blocks.count; first += kTiles) {
    const int count = std::min<int64_t>(kTiles, blocks.count - first);
    for (int t = 0; t < count; ++t)
      ReadBlock(dy, s, blocks, first + t, m + t * s.features, m_step);
    for (int e = 0; e < kPlaces; ++e) Multiply(m + e * m_step, u + e * pairs, back, v + e * v_step);
    for (int t = 0; t < count; ++t)
      AddTile(v + t * s.channels, v_step, s, blocks, first + t, dx);
  }
}

// dkernel = gradient of the kernel for the gradient dy of the result.
template <int kSize>
void WinogradKernelGradient(const float* x, const float* dy, const Shape& s, float* buffer,
                            float* dkernel) {
  constexpr int kBlock = kTile + 1 - kSize;
  const int64_t pairs = s.channels * s.features;
  const int64_t v_step = kTiles * s.channels, m_step = kTiles * s.features;
  float *du = buffer, *v = du + kPlaces * pairs, *m = v + kPlaces * v_step;
  std::fill(du, v, 0.0f);
  const Blocks<kBlock> blocks(s);
  for (int64_t first = 0; first < blocks.count; first += kTiles) {
    const int count = std::min<int64_t>(kTiles, blocks.count - first);
    if (count < kTiles) std::fill(v, m + kPlaces * m_step, 0.0f);
    for (int t = 0; t < count; ++t) {
      TransformTile(x, s, blocks, first + t, v + t * s.channels, v_step);
      ReadBlock(dy, s, blocks, first + t, m + t * s.features, m_step);
    }
    for (int e = 0; e < kPlaces; ++e) AddOuter(v + e * v_step, m + e * m_step, s, du + e * pairs);
  }
  TransposeKernel<kSize>(du, pairs, dkernel);
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_WINOGRAD_H_
