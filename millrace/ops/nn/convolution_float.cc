// Float convolutions with oneDNN. The division of the batch into pieces depends only on its size, and each piece is
// computed by one thread; gradients of filters are summed piece by piece in order.
#include <algorithm>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "millrace/ops/kernels/onednn.h"
#include "millrace/ops/nn/convolution.h"
#include "millrace/ops/nn/rgb_convolution.h"
#include "millrace/ops/nn/winograd.h"
#include "millrace/ops/nn/winograd_3x3.h"

namespace millrace::conv {
namespace {

using dnnl::memory;
using Dims = memory::dims;
constexpr auto kF32 = memory::data_type::f32;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;

// The work per piece that is worth a thread, and the maximum number of pieces. A piece of a filter's gradient needs
// memory of the filter's size.
constexpr double kPieceFlops = 8e6;
constexpr int64_t kMaxPieces = 32;
constexpr int64_t kMaxFilterPieces = 8;
constexpr size_t kMaxPlans = 1024;
constexpr int64_t kSumGrain = 16384;

// Layouts of the operands in oneDNN's order of dimensions: channels first, spatial ones last.
struct Descs {
  memory::desc src, dst, filter;  // as the tensors are stored
  memory::desc any_filter;        // for oneDNN to choose
  Dims strides, dilations, pad_before, pad_after;
};

memory::desc ImageDesc(const ConvGeometry& g, int64_t batch, int64_t channels, bool output) {
  Dims dims = {batch, channels};
  for (int i = 3 - g.rank; i < 3; ++i) dims.push_back(output ? g.dim[i].out : g.dim[i].in);
  using Tag = memory::format_tag;
  const Tag tag =
      g.rank == 2 ? (g.channels_first ? Tag::nchw : Tag::nhwc) : (g.channels_first ? Tag::ncdhw : Tag::ndhwc);
  return memory::desc(dims, kF32, tag);
}

Descs MakeDescs(const ConvGeometry& g, int64_t batch) {
  Descs d;
  d.src = ImageDesc(g, batch, g.in_channels, false);
  d.dst = ImageDesc(g, batch, g.out_channels, true);
  const int64_t in = g.filter_inputs(), out = g.out_channels / g.groups;
  Dims dims = {out, in}, strides = {1, g.out_channels};
  if (g.groups > 1) {
    dims.insert(dims.begin(), g.groups);
    strides.insert(strides.begin(), out);
  }
  int64_t step = in * g.out_channels;
  Dims spatial_strides;
  for (int i = 2; i >= 3 - g.rank; --i) {
    spatial_strides.insert(spatial_strides.begin(), step);
    step *= g.dim[i].window;
  }
  for (int i = 3 - g.rank; i < 3; ++i) {
    dims.push_back(g.dim[i].window);
    d.strides.push_back(g.dim[i].stride);
    d.dilations.push_back(g.dim[i].dilation - 1);
    d.pad_before.push_back(g.dim[i].pad_before);
    d.pad_after.push_back(g.dim[i].pad_after);
  }
  strides.insert(strides.end(), spatial_strides.begin(), spatial_strides.end());
  d.filter = memory::desc(dims, kF32, strides);
  d.any_filter = memory::desc(dims, kF32, memory::format_tag::any);
  return d;
}

std::unique_ptr<onednn::Primitive> MakeReorder(const memory::desc& from, const memory::desc& to) {
  const dnnl::reorder::primitive_desc pd(onednn::CpuEngine(), from, onednn::CpuEngine(), to, onednn::UserScratchpad());
  return std::make_unique<onednn::Primitive>(
      dnnl::reorder(pd), std::vector<onednn::Primitive::Arg>{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}},
      pd.scratchpad_desc());
}

// Everything for one convolution of one size. Immutable and thread-safe.
class Plan {
 public:
  static StatusOr<std::shared_ptr<const Plan>> Get(ConvKind kind, const ConvGeometry& g);

  Status Run(KernelContext& ctx, const float* a, const float* b, float* c, const ConvEpilogue& epilogue) const;

 private:
  Plan(ConvKind kind, const ConvGeometry& g) : kind_(kind), g_(g) {}
  // A range of output rows and the input rows that they depend on.
  struct RowPiece {
    int64_t in_row, out_row, out_rows;
    std::unique_ptr<onednn::Primitive> primitive;
  };
  // The primitive for `batch` images of size `g`; the filter's layout is chosen by the first call.
  std::unique_ptr<onednn::Primitive> Make(const ConvGeometry& g, int64_t batch, const memory::desc* filter);
  // Splits each image into `pieces` by rows, to occupy more threads if there are few images.
  void CutRows(int64_t pieces, const memory::desc& filter);
  Status Build();
  Status RunPiece(int64_t begin, int64_t end, const float* a, const float* b, float* c) const;
  Status RunRows(int64_t piece, const float* image, const float* filter, float* out,
                 const ConvEpilogue& epilogue) const;
  Status RunFilterGradient(KernelContext& ctx, const float* x, const float* dy, float* df) const;

  const ConvKind kind_;
  const ConvGeometry g_;
  int64_t images_per_piece_ = 1;
  size_t filter_floats_ = 0;  // in oneDNN's layout, padding included
  std::unique_ptr<onednn::Primitive> whole_, last_;
  std::vector<RowPiece> rows_;                  // if not empty, used instead of whole images
  std::unique_ptr<onednn::Primitive> reorder_;  // null if the tensor's layout can be used directly
};

std::unique_ptr<onednn::Primitive> Plan::Make(const ConvGeometry& g, int64_t batch, const memory::desc* filter) {
  const Descs d = MakeDescs(g, batch);
  const memory::desc& w = filter == nullptr ? d.any_filter : *filter;
  const dnnl::engine& engine = onednn::CpuEngine();
  const dnnl::convolution_forward::primitive_desc forward(
      {kind_ == ConvKind::kForward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training, kDirect,
       d.src, kind_ == ConvKind::kForward ? w : d.any_filter, d.dst, d.strides, d.dilations, d.pad_before, d.pad_after},
      onednn::UserScratchpad(), engine);
  using Args = std::vector<onednn::Primitive::Arg>;
  if (kind_ == ConvKind::kForward) {
    return std::make_unique<onednn::Primitive>(
        dnnl::convolution_forward(forward),
        Args{{DNNL_ARG_SRC, d.src}, {DNNL_ARG_WEIGHTS, forward.weights_desc()}, {DNNL_ARG_DST, d.dst}},
        forward.scratchpad_desc());
  }
  if (kind_ == ConvKind::kBackwardInput) {
    const dnnl::convolution_backward_data::primitive_desc pd(
        {kDirect, d.src, w, d.dst, d.strides, d.dilations, d.pad_before, d.pad_after}, onednn::UserScratchpad(), engine,
        forward);
    return std::make_unique<onednn::Primitive>(
        dnnl::convolution_backward_data(pd),
        Args{{DNNL_ARG_DIFF_SRC, d.src}, {DNNL_ARG_WEIGHTS, pd.weights_desc()}, {DNNL_ARG_DIFF_DST, d.dst}},
        pd.scratchpad_desc());
  }
  const dnnl::convolution_backward_weights::primitive_desc pd(
      {kDirect, d.src, w, d.dst, d.strides, d.dilations, d.pad_before, d.pad_after}, onednn::UserScratchpad(), engine,
      forward);
  return std::make_unique<onednn::Primitive>(
      dnnl::convolution_backward_weights(pd),
      Args{{DNNL_ARG_SRC, d.src}, {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}, {DNNL_ARG_DIFF_DST, d.dst}},
      pd.scratchpad_desc());
}

Status Plan::Build() {
  const bool filter_gradient = kind_ == ConvKind::kBackwardFilter;
  const int64_t most = std::min(g_.batch, filter_gradient ? kMaxFilterPieces : kMaxPieces);
  const double wanted = g_.flops_per_image() * static_cast<double>(g_.batch) / kPieceFlops;
  const int64_t pieces = std::clamp<int64_t>(static_cast<int64_t>(std::min(wanted, 1e6)), 1, most);
  images_per_piece_ = (g_.batch + pieces - 1) / pieces;
  return onednn::Guarded("convolution", [&] {
    whole_ = Make(g_, images_per_piece_, nullptr);
    const memory::desc filter = whole_->desc(1);
    if (const int64_t rest = g_.batch % images_per_piece_; rest != 0) last_ = Make(g_, rest, &filter);
    const int64_t wanted_pieces = std::min(static_cast<int64_t>(std::min(wanted, 1e6)), kMaxPieces);
    if (kind_ == ConvKind::kForward && wanted_pieces >= 2 * g_.batch) CutRows(wanted_pieces / g_.batch, filter);
    filter_floats_ = (filter.get_size() + sizeof(float) - 1) / sizeof(float);
    const memory::desc stored = MakeDescs(g_, 1).filter;
    if (stored != filter) reorder_ = filter_gradient ? MakeReorder(filter, stored) : MakeReorder(stored, filter);
  });
}

void Plan::CutRows(int64_t pieces, const memory::desc& filter) {
  const WindowDim& h = g_.dim[1];
  if (g_.rank != 2 || g_.channels_first) return;
  const int64_t step = (h.out + pieces - 1) / pieces;
  for (int64_t row = 0; row < h.out; row += step) {
    ConvGeometry g = g_;
    WindowDim& d = g.dim[1];
    d.out = std::min(step, h.out - row);
    const int64_t first = row * h.stride - h.pad_before, end = first + (d.out - 1) * h.stride + h.extent();
    const int64_t begin = std::max<int64_t>(first, 0);
    d.in = std::min(end, h.in) - begin;
    d.pad_before = begin - first;
    d.pad_after = std::max<int64_t>(end - h.in, 0);
    // Rows that depend only on padding are not worth a special case.
    if (d.in <= 0) return rows_.clear();
    rows_.push_back({begin, row, d.out, Make(g, 1, &filter)});
  }
}

StatusOr<std::shared_ptr<const Plan>> Plan::Get(ConvKind kind, const ConvGeometry& g) {
  using Key = std::pair<int, ConvGeometry>;
  static Mutex mu;
  static auto* plans = new absl::flat_hash_map<Key, std::shared_ptr<const Plan>>();
  const Key key(static_cast<int>(kind), g);
  {
    MutexLock lock(&mu);
    if (auto it = plans->find(key); it != plans->end()) return it->second;
  }
  std::shared_ptr<Plan> plan(new Plan(kind, g));
  MR_RETURN_IF_ERROR(plan->Build());
  MutexLock lock(&mu);
  // Bounds memory for an unbounded number of shapes: start over.
  if (plans->size() >= kMaxPlans) plans->clear();
  return plans->try_emplace(key, std::move(plan)).first->second;
}

// Images [begin, end) of a forward pass or an input's gradient; the filter is in oneDNN's layout.
Status Plan::RunPiece(int64_t begin, int64_t end, const float* image, const float* filter, float* out) const {
  const int64_t in_step = g_.in_pixels() * g_.in_channels, out_step = g_.out_pixels() * g_.out_channels;
  const onednn::Primitive& p = end - begin == images_per_piece_ ? *whole_ : *last_;
  void* weights = const_cast<float*>(filter);
  float* from = const_cast<float*>(image);
  if (kind_ == ConvKind::kForward) return p.Run({from + begin * in_step, weights, out + begin * out_step});
  return p.Run({out + begin * in_step, weights, from + begin * out_step});
}

Status Plan::RunRows(int64_t piece, const float* image, const float* filter, float* out,
                     const ConvEpilogue& epilogue) const {
  const int64_t pieces = static_cast<int64_t>(rows_.size()), n = piece / pieces;
  const RowPiece& rows = rows_[piece % pieces];
  const int64_t in_row = g_.dim[2].in * g_.in_channels, out_row = g_.dim[2].out * g_.out_channels;
  float* to = out + (n * g_.dim[1].out + rows.out_row) * out_row;
  MR_RETURN_IF_ERROR(rows.primitive->Run(
      {const_cast<float*>(image) + (n * g_.dim[1].in + rows.in_row) * in_row, const_cast<float*>(filter), to}));
  epilogue.Apply(to, rows.out_rows * g_.dim[2].out, g_.out_channels);
  return absl::OkStatus();
}

Status Plan::RunFilterGradient(KernelContext& ctx, const float* x, const float* dy, float* df) const {
  const int64_t pieces = (g_.batch + images_per_piece_ - 1) / images_per_piece_;
  const int64_t in_step = g_.in_pixels() * g_.in_channels, out_step = g_.out_pixels() * g_.out_channels;
  const int64_t size = static_cast<int64_t>(filter_floats_);
  // Rows are kept 64 bytes apart from each other.
  const int64_t stride = (size + 15) / 16 * 16;
  Tensor parts;
  float* sums = df;
  if (pieces > 1 || reorder_) {
    MR_ASSIGN_OR_RETURN(parts, ctx.AllocateTemp(DType::kFloat, Shape({pieces, stride})));
    sums = parts.data<float>();
  }
  onednn::FirstError error;
  ctx.ParallelFor(g_.batch, images_per_piece_, [&](int64_t begin, int64_t end) {
    const onednn::Primitive& p = end - begin == images_per_piece_ ? *whole_ : *last_;
    error.Update(p.Run({const_cast<float*>(x) + begin * in_step, sums + begin / images_per_piece_ * stride,
                        const_cast<float*>(dy) + begin * out_step}));
  });
  if (!error.ok()) return error.status();
  if (pieces == 1 && !reorder_) return absl::OkStatus();
  float* total = reorder_ ? sums : df;
  ctx.ParallelFor(size, kSumGrain, [&](int64_t begin, int64_t end) {
    if (total != sums) std::copy(sums + begin, sums + end, total + begin);
    for (int64_t p = 1; p < pieces; ++p) {
      const float* part = sums + p * stride;
      for (int64_t i = begin; i < end; ++i) total[i] += part[i];
    }
  });
  return reorder_ ? reorder_->Run({total, df}) : absl::OkStatus();
}

Status Plan::Run(KernelContext& ctx, const float* a, const float* b, float* c, const ConvEpilogue& epilogue) const {
  if (kind_ == ConvKind::kBackwardFilter) return RunFilterGradient(ctx, a, b, c);
  const float* image = kind_ == ConvKind::kForward ? a : b;
  const float* filter = kind_ == ConvKind::kForward ? b : a;
  Tensor packed;
  if (reorder_) {
    MR_ASSIGN_OR_RETURN(packed, ctx.AllocateTemp(DType::kFloat, Shape({static_cast<int64_t>(filter_floats_)})));
    MR_RETURN_IF_ERROR(reorder_->Run({const_cast<float*>(filter), packed.raw_data()}));
    filter = packed.data<float>();
  }
  onednn::FirstError error;
  if (!rows_.empty()) {
    ctx.ParallelFor(g_.batch * static_cast<int64_t>(rows_.size()), 1,
                    [&](int64_t begin, int64_t) { error.Update(RunRows(begin, image, filter, c, epilogue)); });
    return error.status();
  }
  ctx.ParallelFor(g_.batch, images_per_piece_, [&](int64_t begin, int64_t end) {
    error.Update(RunPiece(begin, end, image, filter, c));
    if (kind_ == ConvKind::kForward) ApplyToImages(epilogue, g_, begin, end, c);
  });
  return error.status();
}

// Of the gradient of an input.
Status RunAndAdd(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
                 const float* addend) {
  const int64_t n = g.batch * g.in_pixels() * g.in_channels;
  MR_ASSIGN_OR_RETURN(Tensor own, ctx.AllocateTemp(DType::kFloat, Shape({n})));
  const float* gradient = own.data<float>();
  MR_RETURN_IF_ERROR(RunFloat(ctx, kind, g, a, b, own.data<float>(), {}));
  ctx.ParallelFor(n, kSumGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) c[i] = addend[i] + gradient[i];
  });
  return absl::OkStatus();
}

}  // namespace

Status RunFloat(KernelContext& ctx, ConvKind kind, const ConvGeometry& g, const float* a, const float* b, float* c,
                const ConvEpilogue& epilogue) {
  if (winograd_3x3::Serves(g)) return winograd_3x3::Run(ctx, kind, g, a, b, c, epilogue);
  if (epilogue.addend != nullptr) return RunAndAdd(ctx, kind, g, a, b, c, epilogue.addend);
  if (epilogue.mean != nullptr) {
    MR_RETURN_IF_ERROR(RunFloat(ctx, kind, g, a, b, c, {}));
    return OutputMoments(ctx, g, c, epilogue);
  }
  if (rgb::Serves(kind, g)) return rgb::Run(ctx, kind, g, a, b, c, epilogue);
  if (winograd::Serves(g)) return winograd::Run(ctx, kind, g, a, b, c, epilogue);
  const auto run_loops = [&] {
    RunLoops(ctx, kind, g, a, b, c);
    if (kind == ConvKind::kForward) ApplyToImages(epilogue, g, 0, g.batch, c);
    return absl::OkStatus();
  };
  // oneDNN is fast only with one output per channel.
  if (g.groups > 1 && g.filter_inputs() == 1 && g.out_channels != g.groups) return run_loops();
  StatusOr<std::shared_ptr<const Plan>> plan = Plan::Get(kind, g);
  if (absl::IsUnimplemented(plan.status())) return run_loops();
  MR_RETURN_IF_ERROR(plan.status());
  return (*plan)->Run(ctx, a, b, c, epilogue);
}

}  // namespace millrace::conv
