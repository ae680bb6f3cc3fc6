// Vectors of channels, and the shape of a convolution.

#ifndef FEDJAX_SKEW_SIMD_H_
#define FEDJAX_SKEW_SIMD_H_

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace fedjax_skew {

// The number of floats in a vector, and of rows of a matrix product that fit in the registers.
#ifdef __AVX512F__
constexpr int kLanes = 16, kMinRows = 6, kMaxRows = 14;
#else
constexpr int kLanes = 8, kMinRows = 3, kMaxRows = 6;
#endif

typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4)));

inline Vector Load(const float* p) { return *reinterpret_cast<const Vector*>(p); }
inline void Store(float* p, Vector v) { *reinterpret_cast<Vector*>(p) = v; }

// A convolution of images [images, height, width, channels] with a kernel
// [size, size, channels, features]. `top` and `left` are the padding at the start of both axes.
struct Shape {
  int64_t images, height, width, channels;
  int64_t rows, columns, features;  // of the result
  int64_t size, stride, top, left;
};

// Returns a buffer of the calling thread, which keeps its contents until the next call.
inline float* Buffer(int64_t floats) {
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<float, Free> buffer;
  thread_local int64_t capacity = 0;
  if (floats > capacity) {
    capacity = (floats + 15) / 16 * 16;
    buffer.reset(static_cast<float*>(std::aligned_alloc(64, 4 * capacity)));
  }
  return buffer.get();
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_SIMD_H_
