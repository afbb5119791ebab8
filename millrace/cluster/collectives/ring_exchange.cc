#include <atomic>
#include <cstring>
#include <utility>

#include "millrace/cluster/collectives/exchange.h"
#include "millrace/cluster/collectives/ring_layout.h"
#include "millrace/collective/reduction.h"

namespace millrace {
namespace {

collective::Reduction ReductionOf(CollectiveMerge merge) {
  switch (merge) {
    case CollectiveMerge::kAdd:
      return collective::Reduction::kSum;
    case CollectiveMerge::kMul:
      return collective::Reduction::kProduct;
    case CollectiveMerge::kMin:
      return collective::Reduction::kMin;
    case CollectiveMerge::kMax:
      return collective::Reduction::kMax;
  }
  return collective::Reduction::kSum;
}

// One exchange around the rings of a group. The tensor has a piece for each member and subdivision. In the first pass,
// piece c goes from the member at position c around the ring; a reduction merges it with the own piece on the way. At
// the position before c it is complete. A second pass takes the complete pieces of a reduction around. Pieces depend on
// nothing but themselves, so each is a chain of callbacks, and only the last one needs to know of the others.
class RingExchange : public std::enable_shared_from_this<RingExchange> {
 public:
  explicit RingExchange(std::shared_ptr<CollectiveRun> run)
      : run_(std::move(run)),
        call_(run_->call()),
        size_(run_->group().size()),
        element_(SizeOf(call_.dtype)),
        reduction_(ReductionOf(call_.merge)) {}

  Status Start() {
    MR_RETURN_IF_ERROR(Prepare());
    if (size_ == 1) {
      CopyToElements(ElementBytes(call_.input, 0, call_.input.num_elements()), call_.output, 0);
      run_->Finish(absl::OkStatus());
      return absl::OkStatus();
    }
    open_ = static_cast<int>(rings_.size()) * size_;
    if (call_.kind == CollectiveKind::kGather) {
      CopyToElements(ElementBytes(call_.input, 0, call_.input.num_elements()), call_.output, run_->rank() * chunk_);
    }
    const std::shared_ptr<RingExchange> self = shared_from_this();
    for (int chunk = 0; chunk < size_; ++chunk) {
      for (int ring = 0; ring < static_cast<int>(rings_.size()); ++ring) Begin(chunk, ring, /*pass=*/0);
    }
    return absl::OkStatus();
  }

 private:
  // Positions in a ring.
  int Before(int position, int by) const { return ((position - by) % size_ + size_) % size_; }

  Status Prepare() {
    const bool reduces = call_.kind != CollectiveKind::kGather;
    if (reduces) MR_RETURN_IF_ERROR(collective::CheckReducible(call_.dtype, reduction_));
    std::vector<int> offsets = {0};
    if (call_.kind == CollectiveKind::kReduce) {
      offsets = call_.subdiv_offsets;
      if (offsets.empty())
        offsets = SubdivisionOffsets(run_->group(), call_.input.TotalBytes(), call_.max_subdivs_per_device);
    }
    for (const int offset : offsets) {
      rings_.push_back(RingFor(run_->group(), offset));
      const RingOrder& ring = rings_.back();
      int position = 0;
      while (ring[position] != run_->rank()) ++position;
      positions_.push_back(position);
    }
    switch (call_.kind) {
      case CollectiveKind::kGather:
        if (call_.output.num_elements() != call_.input.num_elements() * size_)
          return InvalidArgument("the members' input has ", call_.input.num_elements(), " elements, but the output ",
                                 call_.output.num_elements(), ", not ", size_, " times as many");
        elements_ = call_.output.num_elements();
        chunk_ = elements_ / size_;
        break;
      case CollectiveKind::kReduceScatter:
        if (call_.input.num_elements() != call_.output.num_elements() * size_)
          return InvalidArgument("the input has ", call_.input.num_elements(), " elements, which are not ", size_,
                                 " times the ", call_.output.num_elements(), " of the output");
        elements_ = call_.input.num_elements();
        chunk_ = elements_ / size_;
        if (size_ > 1) {
          MR_ASSIGN_OR_RETURN(partial_, Tensor::Make(call_.dtype, call_.input.shape()));
        }
        break;
      default:
        elements_ = call_.input.num_elements();
        chunk_ = AlignedChunk(element_, elements_, int64_t{size_} * static_cast<int64_t>(rings_.size()));
        partial_ = call_.output;
    }
    return absl::OkStatus();
  }

  // A piece is numbered by its chunk and ring. A reduce-scatter ends with piece r at member r, so its pieces are one
  // ahead of the chunks, which are complete at the position before.
  int64_t Piece(int chunk, int ring) const {
    if (call_.kind == CollectiveKind::kReduceScatter) return Before(chunk, 1);
    return int64_t{chunk} * static_cast<int64_t>(rings_.size()) + ring;
  }
  int64_t First(int64_t piece) const { return std::min(elements_, piece * chunk_); }
  int64_t Count(int64_t piece) const { return std::min(elements_ - First(piece), chunk_); }
  std::string Key(int chunk, int ring, int pass, int from) const {
    return absl::StrCat(run_->buffer_prefix(), ":", pass, ":",
                        int64_t{chunk} * static_cast<int64_t>(rings_.size()) + ring, ":", from);
  }

  void Begin(int chunk, int ring, int pass) {
    const int64_t piece = Piece(chunk, ring);
    const int64_t count = Count(piece);
    const int position = positions_[ring];
    if (count == 0) return End();
    const bool receives = pass == 0 ? position != chunk : position != Before(chunk, 1);
    if (!receives) return Forward(chunk, ring, pass);
    const int from = Before(position, 1);
    run_->Receive(rings_[ring][from], Key(chunk, ring, pass, from), static_cast<size_t>(count) * element_,
                  [self = shared_from_this(), chunk, ring, pass, piece](const net::Bytes& bytes) {
                    self->Take(chunk, ring, pass, piece, bytes);
                    self->Forward(chunk, ring, pass);
                  });
  }

  void Take(int chunk, int ring, int pass, int64_t piece, const net::Bytes& bytes) {
    const int64_t first = First(piece), count = Count(piece);
    run_->BeforeWork(bytes.size());
    if (call_.kind == CollectiveKind::kGather || pass == 1) return CopyToElements(bytes, call_.output, first);
    const bool complete = positions_[ring] == Before(chunk, 1);
    const bool scatters = call_.kind == CollectiveKind::kReduceScatter;
    char* const to = complete && scatters ? call_.output.raw<char>() : partial_.raw<char>() + first * Bytes(1);
    const collective::AlignedMessage received(bytes);
    collective::Reduce(call_.dtype, reduction_, call_.input.raw<char>() + first * Bytes(1), received.data(), to, count);
    if (complete && call_.divide) {
      collective::FinishReduction(call_.dtype, collective::Reduction::kMean, to, count, size_);
    }
  }

  void Forward(int chunk, int ring, int pass) {
    const int position = positions_[ring];
    const bool sends = position != Before(chunk, pass + 1);
    if (!sends) return Next(chunk, ring, pass);
    const int64_t piece = Piece(chunk, ring);
    const bool own = call_.kind != CollectiveKind::kGather && pass == 0 && position == chunk;
    const Tensor& from = own ? call_.input : call_.kind == CollectiveKind::kGather ? call_.output : partial_;
    run_->Send(rings_[ring][(position + 1) % size_], Key(chunk, ring, pass, position),
               ElementBytes(from, First(piece), Count(piece)),
               [self = shared_from_this(), chunk, ring, pass] { self->Next(chunk, ring, pass); });
  }

  void Next(int chunk, int ring, int pass) {
    if (pass == 0 && call_.kind == CollectiveKind::kReduce) return Begin(chunk, ring, 1);
    End();
  }

  void End() {
    if (open_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    partial_.Reset();
    run_->Finish(absl::OkStatus());
  }

  int64_t Bytes(int64_t elements) const { return elements * static_cast<int64_t>(element_); }

  const std::shared_ptr<CollectiveRun> run_;
  const CollectiveCall& call_;
  const int size_;
  const size_t element_;
  const collective::Reduction reduction_;
  std::vector<RingOrder> rings_;  // one for each subdivision
  std::vector<int> positions_;    // of this member in each
  Tensor partial_;                // where pieces are merged that go on
  int64_t elements_ = 0;          // of all pieces
  int64_t chunk_ = 0;             // the elements of a piece, except for the last ones
  std::atomic<int> open_{0};      // pieces that have not ended
};

}  // namespace

Status StartRing(std::shared_ptr<CollectiveRun> run) { return std::make_shared<RingExchange>(std::move(run))->Start(); }

net::Bytes ElementBytes(const Tensor& tensor, int64_t begin, int64_t count) {
  net::Bytes bytes;
  const size_t size = SizeOf(tensor.dtype());
  if (count > 0) {
    bytes.Append(string_view(tensor.raw<char>() + static_cast<size_t>(begin) * size, static_cast<size_t>(count) * size),
                 tensor.buffer());
  }
  return bytes;
}

void CopyToElements(const net::Bytes& bytes, const Tensor& tensor, int64_t begin) {
  char* to = tensor.raw<char>() + static_cast<size_t>(begin) * SizeOf(tensor.dtype());
  for (const net::Bytes::Piece& piece : bytes.pieces()) {
    std::memcpy(to, piece.data.data(), piece.data.size());
    to += piece.data.size();
  }
}

}  // namespace millrace
