#include "millrace/saved_model/signature.h"

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

bool IsInternalSignature(const std::string& name) { return absl::StartsWith(name, "__saved_model_"); }

pb::TensorInfo TensorInfoOf(const Output& tensor) {
  pb::TensorInfo info;
  info.set_name(tensor.name());
  info.set_dtype(static_cast<pb::DataType>(tensor.dtype()));
  tensor.shape().ToProto(info.mutable_tensor_shape());
  return info;
}

pb::SignatureDef PredictSignature(const SignatureTensors& inputs, const SignatureTensors& outputs) {
  pb::SignatureDef signature;
  signature.set_method_name("tensorflow/serving/predict");
  for (const auto& [name, tensor] : inputs) (*signature.mutable_inputs())[name] = TensorInfoOf(tensor);
  for (const auto& [name, tensor] : outputs) (*signature.mutable_outputs())[name] = TensorInfoOf(tensor);
  return signature;
}

namespace {

Status CheckType(const char* what, const Output& tensor, DType wanted) {
  if (tensor.dtype() == wanted) return absl::OkStatus();
  return InvalidArgument("the ", what, " of a signature must be ", wanted, ", but ",
                         tensor.empty() ? "there are none" : tensor.name(), tensor.empty() ? "" : " is ",
                         tensor.empty() ? "" : DTypeName(tensor.dtype()));
}

}  // namespace

StatusOr<pb::SignatureDef> ClassificationSignature(const Output& examples, const Output& classes,
                                                   const Output& scores) {
  MR_RETURN_IF_ERROR(CheckType("examples", examples, DType::kString));
  SignatureTensors outputs;
  if (!classes.empty()) {
    MR_RETURN_IF_ERROR(CheckType("classes", classes, DType::kString));
    outputs[kClassifyClasses] = classes;
  }
  if (!scores.empty()) {
    MR_RETURN_IF_ERROR(CheckType("scores", scores, DType::kFloat));
    outputs[kClassifyScores] = scores;
  }
  if (outputs.empty()) return InvalidArgument("a classification signature needs classes, scores, or both");
  pb::SignatureDef signature = PredictSignature({{kClassifyInputs, examples}}, outputs);
  signature.set_method_name("tensorflow/serving/classify");
  return signature;
}

StatusOr<pb::SignatureDef> RegressionSignature(const Output& examples, const Output& predictions) {
  MR_RETURN_IF_ERROR(CheckType("examples", examples, DType::kString));
  MR_RETURN_IF_ERROR(CheckType("predictions", predictions, DType::kFloat));
  pb::SignatureDef signature = PredictSignature({{kRegressInputs, examples}}, {{kRegressOutputs, predictions}});
  signature.set_method_name("tensorflow/serving/regress");
  return signature;
}

namespace {

std::string ShapeText(const pb::TensorInfo& info) {
  const StatusOr<PartialShape> shape = PartialShape::FromProto(info.tensor_shape());
  return shape.ok() ? shape->ToString() : "<invalid shape>";
}

}  // namespace

std::string TensorInfoText(const pb::TensorInfo& info) {
  std::string type = absl::StrCat(DTypeName(static_cast<DType>(info.dtype())), ShapeText(info));
  switch (info.encoding_case()) {
    case pb::TensorInfo::kName:
      return absl::StrCat(type, "  ", info.name());
    case pb::TensorInfo::kCooSparse:
      return absl::StrCat(type, "  sparse: ", info.coo_sparse().indices_tensor_name(), ", ",
                          info.coo_sparse().values_tensor_name(), ", ", info.coo_sparse().dense_shape_tensor_name());
    case pb::TensorInfo::kCompositeTensor: {
      absl::StrAppend(&type, "  composite:");
      for (const pb::TensorInfo& part : info.composite_tensor().components()) absl::StrAppend(&type, " ", part.name());
      return type;
    }
    default:
      return absl::StrCat(type, "  (no tensor)");
  }
}

Status SignatureNotFound(const std::string& name, const Signatures& there) {
  std::vector<std::string> names;
  for (const auto& [other, signature] : there) {
    if (!IsInternalSignature(other)) names.push_back(other);
  }
  if (names.empty()) return NotFound("no signature '", name, "': the model has none");
  return NotFound("no signature '", name, "'; there are: ", absl::StrJoin(names, ", "));
}

Status CheckTensorFits(const pb::TensorInfo& info, const Tensor& tensor) {
  const DType wanted = BaseType(static_cast<DType>(info.dtype()));
  if (tensor.dtype() != wanted) return InvalidArgument("is ", tensor.dtype(), ", but must be ", wanted);
  MR_ASSIGN_OR_RETURN(const PartialShape shape, PartialShape::FromProto(info.tensor_shape()));
  if (!shape.IsCompatibleWith(tensor.shape()))
    return InvalidArgument("has shape ", tensor.shape().ToString(), ", but must have ", shape.ToString());
  return absl::OkStatus();
}

}  // namespace millrace
