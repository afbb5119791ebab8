#include "millrace/api/sequence_loss.h"

#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"

namespace millrace::losses {

Output SequenceLoss(const Scope& scope, const Input& logits, const Input& targets, const SequenceLossOptions& options) {
  const Scope s = scope.ForComposite("sequence_loss");
  const Output x = logits.In(s), wanted = targets.In(s, DType::kInt32);
  if (!s.ok()) return Output(s, Endpoint{});
  const PartialShape shape = x.shape();
  const PartialShape words = shape.known_rank() && shape.rank() == 3 ? PartialShape(shape.dims().subspan(0, 2)) : shape;
  if (!shape.known_rank() || shape.rank() != 3 || !wanted.shape().IsCompatibleWith(words)) {
    s.UpdateStatus(InvalidArgument("loss ", s.prefix(), ": logits ", x.name(), " of shape ", shape.ToString(),
                                   " must be [batch, time, classes], and targets ", wanted.name(), " of shape ",
                                   wanted.shape().ToString(), " [batch, time]"));
    return Output(s, Endpoint{});
  }
  const Output classes =
      Op(s, "StridedSlice",
         {Op(s, "Shape", {x}), std::vector<int32_t>{2}, std::vector<int32_t>{3}, std::vector<int32_t>{1}});
  const Output rows = Op(s, "Reshape", {x, Op(s, "ConcatV2", {InputList{std::vector<int32_t>{-1}, classes}, 0})});
  const Output flat = Op(s, "Reshape", {wanted, std::vector<int32_t>{-1}});
  const Output losses = AddOp(s, "SparseSoftmaxCrossEntropyWithLogits", {rows, flat}).output(0);
  Output each = Op(s, "Reshape", {losses, Op(s, "Shape", {wanted})});
  Output weights;
  if (!options.weights.is_nothing()) {
    weights = api_internal::Cast(s, options.weights.In(s, x.dtype(), "weights"), x.dtype());
    if (s.ok() && !weights.shape().IsCompatibleWith(wanted.shape())) {
      s.UpdateStatus(InvalidArgument("loss ", s.prefix(), ": weights ", weights.name(), " of shape ",
                                     weights.shape().ToString(), " must have the targets' shape, ",
                                     wanted.shape().ToString()));
      return Output(s, Endpoint{});
    }
    each = each * weights;
  }
  if (!options.average_across_timesteps && !options.average_across_batch) return each;
  if (weights.empty()) {
    if (options.average_across_timesteps && options.average_across_batch) {
      return api_internal::MeanAll(s.WithOpName("value"), each);
    }
    return Op(s.WithOpName("value"), "Mean", {each, options.average_across_timesteps ? 1 : 0});
  }
  if (options.average_across_timesteps && options.average_across_batch) {
    return Op(s.WithOpName("value"), "DivNoNan", {api_internal::SumAll(s, each), api_internal::SumAll(s, weights)});
  }
  const int axis = options.average_across_timesteps ? 1 : 0;
  return Op(s.WithOpName("value"), "DivNoNan", {Op(s, "Sum", {each, axis}), Op(s, "Sum", {weights, axis})});
}

}  // namespace millrace::losses
