// Shifted and mirrored images; `data/augment.py` draws the shifts.

#ifndef FEDJAX_SKEW_CROP_FLIP_H_
#define FEDJAX_SKEW_CROP_FLIP_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace fedjax_skew {

// out[row, column] = x[row + down, column + right], mirrored left to right if `flip`; pixels from
// outside of the image are zero.
template <int kChannels>
void CropFlip(const uint8_t* x, int64_t height, int64_t width, int64_t down, int64_t right,
              bool flip, uint8_t* out) {
  const int64_t begin = std::max<int64_t>(0, -right), end = std::min(width, width - right);
  for (int64_t row = 0; row < height; ++row, out += width * kChannels) {
    std::memset(out, 0, width * kChannels);
    if (row + down < 0 || row + down >= height || begin >= end) continue;
    const uint8_t* from = x + ((row + down) * width + begin + right) * kChannels;
    if (!flip) {
      std::memcpy(out + begin * kChannels, from, (end - begin) * kChannels);
      continue;
    }
    uint8_t* to = out + (width - 1 - begin) * kChannels;
    for (int64_t n = begin; n < end; ++n, from += kChannels, to -= kChannels)
      std::memcpy(to, from, kChannels);
  }
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_CROP_FLIP_H_
