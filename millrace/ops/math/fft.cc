// Fourier transforms over the last one, two or three dimensions: of complex numbers (FFT), from real ones (RFFT) and
// back to them (IRFFT). Computed in double precision with Eigen's FFT.
#include <unsupported/Eigen/FFT>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using Wave = std::complex<double>;

// The last dimensions of a batch of signals, each transformed in turn.
struct Signals {
  std::vector<int64_t> dims;  // of one signal
  std::vector<Wave> values;   // of all
  int64_t size() const {
    int64_t n = 1;
    for (const int64_t d : dims) n *= d;
    return n;
  }
};

// Transforms all lines along `axis` in place.
void TransformAxis(Signals* signals, size_t axis, bool inverse) {
  const int64_t n = signals->dims[axis];
  if (n <= 1) return;
  int64_t stride = 1;
  for (size_t k = axis + 1; k < signals->dims.size(); ++k) stride *= signals->dims[k];
  Eigen::FFT<double> fft;
  std::vector<Wave> line(static_cast<size_t>(n)), result;
  const int64_t total = static_cast<int64_t>(signals->values.size());
  for (int64_t block = 0; block < total; block += n * stride) {
    for (int64_t offset = 0; offset < stride; ++offset) {
      Wave* const first = signals->values.data() + block + offset;
      for (int64_t i = 0; i < n; ++i) line[static_cast<size_t>(i)] = first[i * stride];
      if (inverse) {
        fft.inv(result, line);
      } else {
        fft.fwd(result, line);
      }
      for (int64_t i = 0; i < n; ++i) first[i * stride] = result[static_cast<size_t>(i)];
    }
  }
}

// Copies the overlap of two boxes of `from` and `to` dims in each signal; what `to` has beyond is left.
void CopyOverlap(const std::vector<Wave>& from, const std::vector<int64_t>& from_dims, std::vector<Wave>* to,
                 const std::vector<int64_t>& to_dims, int64_t batch) {
  int64_t from_size = 1, to_size = 1, lines = 1;
  const size_t rank = to_dims.size();
  for (size_t k = 0; k < rank; ++k) {
    from_size *= from_dims[k];
    to_size *= to_dims[k];
    if (k + 1 < rank) lines *= std::min(from_dims[k], to_dims[k]);
  }
  const int64_t n = std::min(from_dims.back(), to_dims.back());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t line = 0; line < lines; ++line) {
      int64_t left = line, from_at = 0, to_at = 0, from_stride = from_dims.back(), to_stride = to_dims.back();
      for (size_t k = rank - 1; k-- > 0;) {
        const int64_t d = std::min(from_dims[k], to_dims[k]), i = left % d;
        left /= d;
        from_at += i * from_stride;
        to_at += i * to_stride;
        from_stride *= from_dims[k];
        to_stride *= to_dims[k];
      }
      std::copy_n(from.begin() + b * from_size + from_at, n, to->begin() + b * to_size + to_at);
    }
  }
}

using WaveTypes = Types<float, double, std::complex<float>, std::complex<double>>;

class FourierKernel : public Kernel {
 public:
  FourierKernel(KernelInit& init, int rank, bool inverse, bool real) : rank_(rank), inverse_(inverse), real_(real) {}
  bool is_expensive() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() < rank_) {
      return InvalidArgument("Input must have rank of at least ", rank_, " but got: ", in.shape().ToString());
    }
    Signals signals;
    for (int k = in.rank() - rank_; k < in.rank(); ++k) signals.dims.push_back(in.dim(k));
    std::vector<int64_t> lengths = signals.dims;
    if (real_) MR_RETURN_IF_ERROR(ReadLengths(ctx.input(1), &lengths));
    // Of a real signal the upper half of the last dimension is the mirror of the lower one.
    std::vector<int64_t> half = lengths;
    if (real_) half.back() = half.back() == 0 ? 0 : half.back() / 2 + 1;
    const std::vector<int64_t>& given = real_ && inverse_ ? half : lengths;
    const std::vector<int64_t>& wanted = real_ && !inverse_ ? half : lengths;
    MR_RETURN_IF_ERROR(CheckLength(in, given));
    Shape::Dims out_dims(in.shape().dims().begin(), in.shape().dims().end() - rank_);
    for (const int64_t d : wanted) out_dims.push_back(d);
    MR_ASSIGN_OR_RETURN(const Shape out_shape, Shape::Make(out_dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, out_shape));
    if (out_shape.num_elements() == 0) return absl::OkStatus();
    const int64_t batch = in.shape().Product(0, in.rank() - rank_);
    Signals work{given, std::vector<Wave>(static_cast<size_t>(batch * Product(given)))};
    Load(in, &signals.values);
    if (in.num_elements() > 0) CopyOverlap(signals.values, signals.dims, &work.values, given, batch);
    if (real_ && inverse_) {
      for (size_t axis = 0; axis + 1 < given.size(); ++axis) TransformAxis(&work, axis, true);
      Mirror(&work, lengths.back());
      TransformAxis(&work, given.size() - 1, true);
    } else {
      for (size_t axis = 0; axis < given.size(); ++axis) TransformAxis(&work, axis, inverse_);
    }
    std::vector<Wave> result(static_cast<size_t>(out_shape.num_elements()));
    CopyOverlap(work.values, work.dims, &result, wanted, batch);
    Store(result, out);
    return absl::OkStatus();
  }

 private:
  static int64_t Product(const std::vector<int64_t>& dims) {
    int64_t n = 1;
    for (const int64_t d : dims) n *= d;
    return n;
  }

  Status ReadLengths(const Tensor& t, std::vector<int64_t>* lengths) const {
    if (t.rank() != 1 || t.dim(0) != rank_) {
      return InvalidArgument("fft_length must have shape [", rank_, "], but it has ", t.shape().ToString());
    }
    for (int k = 0; k < rank_; ++k) {
      (*lengths)[static_cast<size_t>(k)] = t.data<int32_t>()[k];
      if (t.data<int32_t>()[k] < 0)
        return InvalidArgument("fft_length[", k, "] must >= 0, but got: ", t.data<int32_t>()[k]);
    }
    return absl::OkStatus();
  }

  // The input may be longer than needed, but not shorter.
  Status CheckLength(const Tensor& in, const std::vector<int64_t>& given) const {
    if (!real_) return absl::OkStatus();
    for (int k = 0; k < rank_; ++k) {
      const int64_t has = in.dim(in.rank() - rank_ + k), needs = given[static_cast<size_t>(k)];
      if (has != 0 && has < needs) {
        return InvalidArgument("Input dimension ", in.rank() - rank_ + k, " must have length of at least ", needs,
                               " but got: ", has);
      }
    }
    return absl::OkStatus();
  }

  // Completes the last dimension to `n`: value n - k is the conjugate of value k.
  static void Mirror(Signals* signals, int64_t n) {
    const int64_t half = signals->dims.back(), lines = static_cast<int64_t>(signals->values.size()) / half;
    std::vector<Wave> whole(static_cast<size_t>(lines * n));
    for (int64_t line = 0; line < lines; ++line) {
      const Wave* from = signals->values.data() + line * half;
      Wave* to = whole.data() + line * n;
      for (int64_t k = 0; k < n; ++k) to[k] = k < half ? from[k] : std::conj(from[n - k]);
    }
    signals->dims.back() = n;
    signals->values = std::move(whole);
  }

  static void Load(const Tensor& t, std::vector<Wave>* values) {
    values->resize(static_cast<size_t>(t.num_elements()));
    DispatchType(WaveTypes{}, t.dtype(), [&](auto tag) {
      const auto* from = t.data<typename decltype(tag)::type>();
      std::copy(from, from + t.num_elements(), values->begin());
    });
  }
  static void Store(const std::vector<Wave>& values, Tensor* t) {
    DispatchType(WaveTypes{}, t->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = t->data<T>();
      for (size_t i = 0; i < values.size(); ++i) {
        if constexpr (std::is_floating_point_v<T>) {
          to[i] = static_cast<T>(values[i].real());
        } else {
          to[i] = static_cast<T>(values[i]);
        }
      }
    });
  }

  const int rank_;
  const bool inverse_, real_;
};

template <int kRank, bool kInverse, bool kReal>
class FourierOf : public FourierKernel {
 public:
  explicit FourierOf(KernelInit& init) : FourierKernel(init, kRank, kInverse, kReal) {}
};

template <int kRank>
Status ComplexFourierShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(0, kRank).status());
  return UnchangedShape(c);
}

template <int kRank, bool kInverse>
Status RealFourierShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(0, kRank));
  if (!shape.known_rank()) return UnknownShape(c);
  std::vector<int64_t> lengths;
  const bool known = c.ConstantInts(1, &lengths) && lengths.size() == kRank;
  for (int k = 0; k < kRank; ++k) {
    int64_t n = known ? lengths[static_cast<size_t>(k)] : -1;
    if (!kInverse && k + 1 == kRank && n > 0) n = n / 2 + 1;
    shape.set_dim(shape.rank() - kRank + k, n);
  }
  c.set_output(0, shape);
  return absl::OkStatus();
}

#define MR_FOURIER(Name, rank, inverse, summary)                \
  MILLRACE_OP(Name)                                             \
      .Input("input: Tcomplex")                                 \
      .Output("output: Tcomplex")                               \
      .Attr("Tcomplex: {complex64, complex128} = DT_COMPLEX64") \
      .Shape(ComplexFourierShape<rank>)                         \
      .Summary(summary);                                        \
  using Name##Kernel = FourierOf<rank, inverse, false>;         \
  MILLRACE_KERNEL(Name, kCpu, Name##Kernel)
#define MR_REAL_FOURIER(Name, rank, inverse, in, out, summary)  \
  MILLRACE_OP(Name)                                             \
      .Input(in)                                                \
      .Input("fft_length: int32")                               \
      .Output(out)                                              \
      .Attr("Treal: {float, double} = DT_FLOAT")                \
      .Attr("Tcomplex: {complex64, complex128} = DT_COMPLEX64") \
      .Shape(RealFourierShape<rank, inverse>)                   \
      .Summary(summary);                                        \
  using Name##Kernel = FourierOf<rank, inverse, true>;          \
  MILLRACE_KERNEL(Name, kCpu, Name##Kernel)

MR_FOURIER(FFT, 1, false, "The Fourier transform over the last dimension.");
MR_FOURIER(FFT2D, 2, false, "The Fourier transform over the last two dimensions.");
MR_FOURIER(FFT3D, 3, false, "The Fourier transform over the last three dimensions.");
MR_FOURIER(IFFT, 1, true, "The inverse Fourier transform over the last dimension.");
MR_FOURIER(IFFT2D, 2, true, "The inverse Fourier transform over the last two dimensions.");
MR_FOURIER(IFFT3D, 3, true, "The inverse Fourier transform over the last three dimensions.");
MR_REAL_FOURIER(RFFT, 1, false, "input: Treal", "output: Tcomplex", "The Fourier transform of a real signal.");
MR_REAL_FOURIER(RFFT2D, 2, false, "input: Treal", "output: Tcomplex", "The Fourier transform of real 2-D signals.");
MR_REAL_FOURIER(RFFT3D, 3, false, "input: Treal", "output: Tcomplex", "The Fourier transform of real 3-D signals.");
MR_REAL_FOURIER(IRFFT, 1, true, "input: Tcomplex", "output: Treal", "A real signal from its Fourier transform.");
MR_REAL_FOURIER(IRFFT2D, 2, true, "input: Tcomplex", "output: Treal", "Real 2-D signals from their Fourier transform.");
MR_REAL_FOURIER(IRFFT3D, 3, true, "input: Tcomplex", "output: Treal", "Real 3-D signals from their Fourier transform.");

}  // namespace
}  // namespace millrace
