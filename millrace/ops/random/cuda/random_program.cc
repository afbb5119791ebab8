#include "millrace/ops/random/cuda/random_program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace::random {
namespace {

const char* NameOf(Distribution distribution) {
  switch (distribution) {
    case Distribution::kUniform:
      return "Uniform";
    case Distribution::kNormal:
      return "Normal";
    case Distribution::kTruncatedNormal:
      return "TruncatedNormal";
    case Distribution::kFullInt:
      return "FullInt";
    case Distribution::kUniformInt:
      return "UniformInt";
  }
  return nullptr;
}

}  // namespace

RandomProgram::State RandomProgram::State::Of(const Philox& stream) {
  State state;
  std::copy(stream.counter().begin(), stream.counter().end(), state.counter);
  std::copy(stream.key().begin(), stream.key().end(), state.key);
  return state;
}

int64_t GroupsOf(int64_t elements, DType dtype) {
  const int64_t per_group = SizeOf(dtype) == 8 ? 2 : 4;
  return (elements + per_group - 1) / per_group;
}

std::string RandomProgram::Headers() {
  constexpr char kState[] = R"text(
namespace millrace::random {
struct State {
  uint32_t counter[4];
  uint32_t key[2];
};
}  // namespace millrace::random
)text";
  return absl::StrCat(kProgramPrelude, kProgramPhilox, kProgramDistributions, kState);
}

std::string RandomProgram::Text() const { return absl::StrCat(Headers(), Kernel(kKernel)); }

std::string RandomProgram::Kernel(const std::string& name) const {
  constexpr char kText[] = R"text(
namespace millrace {
extern "C" __global__ void $0(int64_t n, const random::State state$3, $1* out) {
  using Numbers = random::$2<$1>;
  const Numbers numbers$4;
  const Philox stream({state.counter[0], state.counter[1], state.counter[2], state.counter[3]},
                      {state.key[0], state.key[1]});
  ForElements((n + Numbers::kPerGroup - 1) / Numbers::kPerGroup, [&](int64_t group) {
    $1 drawn[Numbers::kPerGroup];
    random::DrawGroup(numbers, stream, group, drawn);
    for (int i = 0; i < Numbers::kPerGroup; ++i) {
      const int64_t at = group * Numbers::kPerGroup + i;
      if (at < n) out[at] = drawn[i];
    }
  });
}
}  // namespace millrace
)text";
  const bool range = distribution == Distribution::kUniformInt;
  return absl::Substitute(kText, name, ProgramTypeName(dtype), NameOf(distribution),
                          range ? ", uint64_t low, uint64_t size" : "",
                          range ? "{static_cast<Numbers::U>(low), static_cast<Numbers::U>(size)}" : "{}");
}

}  // namespace millrace::random
