// XLA's custom calls: a convolution and its two gradients, the same with pooling and ReLU, products
// of dense layers, batch normalisation, crop and flip, and AutoAugment's operations.
//
// Arrays of networks are float32 with the layouts of flax.linen; additional leading axes are batches of
// independent operations, as `vmap` makes them. A call runs on the thread of its device.
//
// Without pooling, features are multiples of 16, and for the gradient of images also channels.

#include "autoaugment.h"
#include "crop_flip.h"
#include "dense.h"
#include "direct.h"
#include "norm.h"
#include "pooled.h"
#include "pooled_gradients.h"
#include "pooled_pixels.h"
#include "pooled_winograd.h"
#include "winograd.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace fedjax_skew {
namespace {

using Array = ffi::Buffer<ffi::F32>;
using Result = ffi::Result<Array>;

// Returns the shape of a convolution, and the number of convolutions in `batch`.
Shape MakeShape(ffi::Span<const int64_t> images, ffi::Span<const int64_t> kernel,
                ffi::Span<const int64_t> results, int64_t stride, int64_t top, int64_t left,
                int64_t* batch) {
  const size_t n = images.size() - 4;
  *batch = 1;
  for (size_t i = 0; i < n; ++i) *batch *= images[i];
  return {images[n],      images[n + 1],  images[n + 2], images[n + 3], results[n + 1],
          results[n + 2], results[n + 3], kernel[n],     stride,        top,
          left};
}

int64_t Images(const Shape& s) { return s.images * s.height * s.width * s.channels; }
int64_t Kernel(const Shape& s) { return s.size * s.size * s.channels * s.features; }
int64_t Results(const Shape& s) { return s.images * s.rows * s.columns * s.features; }

bool UseWinograd(const Shape& s) {
  return s.stride == 1 && (s.size == 3 || s.size == 5) && s.channels % 16 == 0 && s.rows > 2 &&
         s.columns > 2;
}

void ConvOne(const float* x, const float* kernel, const Shape& s, float* y) {
  if (!UseWinograd(s)) {
    DirectConv(x, kernel, s, Buffer(DirectConvFloats(s)), y);
  } else if (s.size == 3) {
    WinogradConv<3>(x, kernel, s, Buffer(WinogradFloats(s)), y);
  } else {
    WinogradConv<5>(x, kernel, s, Buffer(WinogradFloats(s)), y);
  }
}

ffi::Error Conv(Array x, Array kernel, int64_t stride, int64_t top, int64_t left, Result y) {
  int64_t batch;
  const Shape s =
      MakeShape(x.dimensions(), kernel.dimensions(), y->dimensions(), stride, top, left, &batch);
  for (int64_t n = 0; n < batch; ++n)
    ConvOne(x.typed_data() + n * Images(s), kernel.typed_data() + n * Kernel(s), s,
            y->typed_data() + n * Results(s));
  return ffi::Error::Success();
}

// Writes the kernel as [size, size, features, channels], with its pixels in reverse order if `flip`.
void Transpose(const float* kernel, const Shape& s, bool flip, float* out) {
  const int64_t taps = s.size * s.size;
  for (int64_t t = 0; t < taps; ++t) {
    const float* from = kernel + (flip ? taps - 1 - t : t) * s.channels * s.features;
    for (int64_t f = 0; f < s.features; ++f)
      for (int64_t c = 0; c < s.channels; ++c) *out++ = from[c * s.features + f];
  }
}

template <int kSize>
void WinogradImages(const float* dy, const float* kernel, const Shape& s, const Shape& back,
                    float* dx) {
  constexpr int kBlock = kTile + 1 - kSize;
  float* transposed = Buffer(Kernel(s) + WinogradFloats(back));
  float* rest = transposed + Kernel(s);
  const bool fewer = Blocks<kBlock>(s).count < Blocks<kBlock>(back).count;
  Transpose(kernel, s, !fewer, transposed);
  if (fewer) {
    WinogradImageGradient<kSize>(dy, transposed, s, rest, dx);
  } else {
    WinogradConv<kSize>(dy, transposed, back, rest, dx);
  }
}

ffi::Error ImageGradient(Array dy, Array kernel, int64_t stride, int64_t top, int64_t left,
                         Result dx) {
  int64_t batch;
  const Shape s =
      MakeShape(dx->dimensions(), kernel.dimensions(), dy.dimensions(), stride, top, left, &batch);
  // The convolution that maps dy to dx if the stride is 1.
  const Shape back = {s.images,   s.rows, s.columns, s.features,         s.height,          s.width,
                      s.channels, s.size, 1,         s.size - 1 - s.top, s.size - 1 - s.left};
  for (int64_t n = 0; n < batch; ++n) {
    const float* from = dy.typed_data() + n * Results(s);
    const float* k = kernel.typed_data() + n * Kernel(s);
    float* to = dx->typed_data() + n * Images(s);
    if (stride > 1 || !UseWinograd(back)) {
      DirectImageGradient(from, k, s, Buffer(DirectImageGradientFloats(s)), to);
    } else if (s.size == 3) {
      WinogradImages<3>(from, k, s, back, to);
    } else {
      WinogradImages<5>(from, k, s, back, to);
    }
  }
  return ffi::Error::Success();
}

ffi::Error KernelGradient(Array x, Array dy, int64_t stride, int64_t top, int64_t left,
                          Result dkernel) {
  int64_t batch;
  const Shape s =
      MakeShape(x.dimensions(), dkernel->dimensions(), dy.dimensions(), stride, top, left, &batch);
  for (int64_t n = 0; n < batch; ++n) {
    const float* from = x.typed_data() + n * Images(s);
    const float* g = dy.typed_data() + n * Results(s);
    float* to = dkernel->typed_data() + n * Kernel(s);
    if (!UseWinograd(s)) {
      DirectKernelGradient(from, g, s, Buffer(DirectConvFloats(s)), to);
    } else if (s.size == 3) {
      WinogradKernelGradient<3>(from, g, s, Buffer(WinogradFloats(s)), to);
    } else {
      WinogradKernelGradient<5>(from, g, s, Buffer(WinogradFloats(s)), to);
    }
  }
  return ffi::Error::Success();
}

using Places = ffi::Buffer<ffi::S8>;
using PlacesResult = ffi::Result<Places>;

auto ChooseConvPool(const Shape& s) {
  if (s.features > 8) return UseRowWinograd(s) ? RowPoolConv : PooledConv;
  if (UseRowWinograd(s)) return RowPixelConv;
  return s.size == 3 ? PixelConv<3> : PixelConv<5>;
}

ffi::Error ConvPoolTo(Array x, Array kernel, Array bias, int64_t top, int64_t left, Result y,
                      int8_t* holder) {
  int64_t batch;
  const Shape s =
      MakeShape(x.dimensions(), kernel.dimensions(), y->dimensions(), 1, top, left, &batch);
  const auto run = ChooseConvPool(s);
  float* buffer = Buffer(std::max({PooledConvFloats(s), PixelConvFloats(s), RowPoolConvFloats(s),
                                   RowPixelConvFloats(s)}));
  for (int64_t n = 0; n < batch; ++n)
    run(x.typed_data() + n * Images(s), kernel.typed_data() + n * Kernel(s),
        bias.typed_data() + n * s.features, s, buffer,
        Pooled{y->typed_data(), holder} + n * Results(s));
  return ffi::Error::Success();
}

ffi::Error ConvPool(Array x, Array kernel, Array bias, int64_t top, int64_t left, Result y) {
  return ConvPoolTo(x, kernel, bias, top, left, y, nullptr);
}

ffi::Error ConvPoolPlaces(Array x, Array kernel, Array bias, int64_t top, int64_t left, Result y,
                          PlacesResult holder) {
  return ConvPoolTo(x, kernel, bias, top, left, y, holder->typed_data());
}

ffi::Error ConvPoolImageGradient(Array kernel, Places holder, Array dy, int64_t top, int64_t left,
                                 Result dx) {
  int64_t batch;
  const Shape s =
      MakeShape(dx->dimensions(), kernel.dimensions(), dy.dimensions(), 1, top, left, &batch);
  const auto run = s.size == 3 ? PooledImageGradient<3> : PooledImageGradient<5>;
  float* buffer = Buffer(PooledImageGradientFloats(s));
  for (int64_t n = 0; n < batch; ++n)
    run(kernel.typed_data() + n * Kernel(s), holder.typed_data() + n * Results(s),
        dy.typed_data() + n * Results(s), s, buffer, dx->typed_data() + n * Images(s));
  return ffi::Error::Success();
}

// The sums of the entries must fit in the registers.
auto ChooseKernelGradient(const Shape& s) {
  if (s.features >= kLanes) {
    if (s.size == 3 && s.channels == 1) return EntriesKernelGradient<3, 1>;
    if (kLanes == 16 && s.size == 3 && s.channels == 3) return EntriesKernelGradient<3, 3>;
    if (kLanes == 16 && s.size == 5 && s.channels == 1) return EntriesKernelGradient<5, 1>;
  }
  return s.size == 3 ? PooledKernelGradient<3> : PooledKernelGradient<5>;
}

ffi::Error ConvPoolKernelGradient(Array x, Places holder, Array dy, int64_t top, int64_t left,
                                  Result dkernel, Result dbias) {
  int64_t batch;
  const Shape s =
      MakeShape(x.dimensions(), dkernel->dimensions(), dy.dimensions(), 1, top, left, &batch);
  const auto run = ChooseKernelGradient(s);
  float* buffer = Buffer(std::max(PooledKernelGradientFloats(s), EntriesFloats(s)));
  for (int64_t n = 0; n < batch; ++n)
    run(x.typed_data() + n * Images(s), holder.typed_data() + n * Results(s),
        dy.typed_data() + n * Results(s), s, buffer, dkernel->typed_data() + n * Kernel(s),
        dbias->typed_data() + n * s.features);
  return ffi::Error::Success();
}

using Where = ffi::Buffer<ffi::PRED>;

NormShape MakeNormShape(ffi::Span<const int64_t> x, float eps, bool relu, int64_t* batch) {
  const size_t n = x.size() - 3;
  *batch = 1;
  for (size_t i = 0; i < n; ++i) *batch *= x[i];
  return {x[n], x[n + 1], x[n + 2], eps, relu};
}

ffi::Error Norm(Array x, Where where, Array scale, Array bias, float eps, bool relu, Result y,
                Result mean, Result var) {
  int64_t batch;
  const NormShape s = MakeNormShape(x.dimensions(), eps, relu, &batch);
  float* buffer = Buffer(NormFloats(s));
  for (int64_t n = 0; n < batch; ++n) {
    const int64_t at = n * s.rows * s.pixels * s.channels, c = n * s.channels;
    BatchNorm(x.typed_data() + at, where.typed_data() + n * s.rows,
              {scale.typed_data() + c, bias.typed_data() + c}, s, buffer, y->typed_data() + at,
              mean->typed_data() + c, var->typed_data() + c);
  }
  return ffi::Error::Success();
}

ffi::Error NormGradient(Array x, Where where, Array scale, Array bias, Array mean, Array var,
                        Array dy, float eps, bool relu, Result dx, Result dscale, Result dbias) {
  int64_t batch;
  const NormShape s = MakeNormShape(x.dimensions(), eps, relu, &batch);
  float* buffer = Buffer(NormFloats(s));
  for (int64_t n = 0; n < batch; ++n) {
    const int64_t at = n * s.rows * s.pixels * s.channels, c = n * s.channels;
    BatchNormGradient(x.typed_data() + at, where.typed_data() + n * s.rows,
                      {scale.typed_data() + c, bias.typed_data() + c}, mean.typed_data() + c,
                      var.typed_data() + c, dy.typed_data() + at, s, buffer,
                      dx->typed_data() + at, dscale->typed_data() + c, dbias->typed_data() + c);
  }
  return ffi::Error::Success();
}

ffi::Error Dense(Array a, Array b, bool transposed, Result out) {
  const auto left = a.dimensions(), right = b.dimensions();
  const size_t n = left.size() - 2;
  const int64_t inner = right[n], columns = right[n + 1];
  const int64_t rows = transposed ? left[n + 1] : left[n];
  const int64_t batch = out->element_count() / std::max<int64_t>(1, rows * columns);
  for (int64_t i = 0; i < batch; ++i)
    Multiply({a.typed_data() + i * rows * inner, b.typed_data() + i * inner * columns, rows, inner,
              columns, transposed, out->typed_data() + i * rows * columns});
  return ffi::Error::Success();
}

using Bytes = ffi::Buffer<ffi::U8>;

// Shifts images [..., height, width, channels] by pixels [..., 2], and mirrors them.
ffi::Error CropFlipAll(Bytes x, ffi::Buffer<ffi::S32> shifts, ffi::Buffer<ffi::PRED> flips,
                       ffi::Result<Bytes> out) {
  const auto shape = x.dimensions();
  const int64_t height = shape[shape.size() - 3], width = shape[shape.size() - 2];
  const int64_t bytes = height * width * shape.back();
  const auto run = shape.back() == 1 ? CropFlip<1> : CropFlip<3>;
  for (int64_t n = 0; n < static_cast<int64_t>(flips.element_count()); ++n) {
    const int32_t* shift = shifts.typed_data() + 2 * n;
    run(x.typed_data() + n * bytes, height, width, shift[0], shift[1], flips.typed_data()[n],
        out->typed_data() + n * bytes);
  }
  return ffi::Error::Success();
}

// Applies operations [..., N] with their magnitudes to images [..., height, width, channels].
template <int kChannels>
void AugmentAll(Bytes x, ffi::Buffer<ffi::S32> operation, Array magnitude, uint8_t* out) {
  const auto shape = x.dimensions();
  const int64_t height = shape[shape.size() - 3], width = shape[shape.size() - 2];
  const int64_t bytes = height * width * kChannels, steps = operation.dimensions().back();
  float* buffer = Buffer(AugmenterFloats(height, width));
  std::memcpy(out, x.typed_data(), x.element_count());
  for (int64_t n = 0; n * bytes < x.element_count(); ++n) {
    Augmenter<kChannels> augmenter(out + n * bytes, height, width, buffer);
    for (int64_t i = n * steps; i < (n + 1) * steps; ++i)
      augmenter.Apply(operation.typed_data()[i], magnitude.typed_data()[i]);
  }
}

ffi::Error AutoAugment(Bytes x, ffi::Buffer<ffi::S32> operation, Array magnitude,
                       ffi::Result<Bytes> out) {
  const auto run = x.dimensions().back() == 1 ? AugmentAll<1> : AugmentAll<3>;
  run(x, operation, magnitude, out->typed_data());
  return ffi::Error::Success();
}

auto Binding() {
  return ffi::Ffi::Bind()
      .Arg<Array>()
      .Arg<Array>()
      .Attr<int64_t>("stride")
      .Attr<int64_t>("top")
      .Attr<int64_t>("left")
      .Ret<Array>();
}

auto PoolBinding() {
  return ffi::Ffi::Bind()
      .Arg<Array>()
      .Arg<Array>()
      .Arg<Array>()
      .Attr<int64_t>("top")
      .Attr<int64_t>("left")
      .Ret<Array>();
}

auto PoolImageBinding() {
  return ffi::Ffi::Bind()
      .Arg<Array>()
      .Arg<Places>()
      .Arg<Array>()
      .Attr<int64_t>("top")
      .Attr<int64_t>("left")
      .Ret<Array>();
}

auto NormBinding() {
  return ffi::Ffi::Bind()
      .Arg<Array>()
      .Arg<Where>()
      .Arg<Array>()
      .Arg<Array>()
      .Attr<float>("eps")
      .Attr<bool>("relu")
      .Ret<Array>()
      .Ret<Array>()
      .Ret<Array>();
}

auto NormGradientBinding() {
  return ffi::Ffi::Bind()
      .Arg<Array>()
      .Arg<Where>()
      .Arg<Array>()
      .Arg<Array>()
      .Arg<Array>()
      .Arg<Array>()
      .Arg<Array>()
      .Attr<float>("eps")
      .Attr<bool>("relu")
      .Ret<Array>()
      .Ret<Array>()
      .Ret<Array>();
}

auto PoolKernelBinding() { return PoolImageBinding().Ret<Array>(); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(conv, Conv, Binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(image_gradient, ImageGradient, Binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(kernel_gradient, KernelGradient, Binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(conv_pool, ConvPool, PoolBinding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(conv_pool_places, ConvPoolPlaces, PoolBinding().Ret<Places>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(conv_pool_image_gradient, ConvPoolImageGradient, PoolImageBinding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(conv_pool_kernel_gradient, ConvPoolKernelGradient,
                              PoolKernelBinding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(batch_norm, Norm, NormBinding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(batch_norm_gradient, NormGradient, NormGradientBinding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    dense, Dense, ffi::Ffi::Bind().Arg<Array>().Arg<Array>().Attr<bool>("transposed").Ret<Array>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(crop_flip, CropFlipAll,
                              ffi::Ffi::Bind()
                                  .Arg<Bytes>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::PRED>>()
                                  .Ret<Bytes>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(autoaugment, AutoAugment,
                              ffi::Ffi::Bind()
                                  .Arg<Bytes>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<Array>()
                                  .Ret<Bytes>());

}  // namespace fedjax_skew
