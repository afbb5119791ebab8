// Signatures: what can be asked of a model, as inputs and outputs by name.
#pragma once

#include <map>
#include <string>

#include "millrace/api/output.h"
#include "millrace/base/status.h"
#include "millrace/proto/meta_graph.pb.h"

namespace millrace {

namespace pb = ::tensorflow;

// Names that TensorFlow and TensorFlow Serving know.
inline constexpr char kServeTag[] = "serve";
inline constexpr char kTrainTag[] = "train";
inline constexpr char kEvalTag[] = "eval";
inline constexpr char kGpuTag[] = "gpu";
// The signature that is used if none is named.
inline constexpr char kDefaultSignature[] = "serving_default";
// The names of the tensors of the classification and regression signatures.
inline constexpr char kClassifyInputs[] = "inputs";
inline constexpr char kClassifyClasses[] = "classes";
inline constexpr char kClassifyScores[] = "scores";
inline constexpr char kRegressInputs[] = "inputs";
inline constexpr char kRegressOutputs[] = "outputs";

using SignatureTensors = std::map<std::string, Output>;
using Signatures = std::map<std::string, pb::SignatureDef>;

// True for what TensorFlow 2 stores as signatures but nobody predicts with.
bool IsInternalSignature(const std::string& name);

// The name, type and shape of a tensor.
pb::TensorInfo TensorInfoOf(const Output& tensor);

// A signature of any inputs and outputs.
pb::SignatureDef PredictSignature(const SignatureTensors& inputs, const SignatureTensors& outputs);
// From serialized Examples (strings) to classes (strings), scores (float), or both; an Output that is empty is left
// out. INVALID_ARGUMENT if a type is another, or if there is neither.
StatusOr<pb::SignatureDef> ClassificationSignature(const Output& examples, const Output& classes, const Output& scores);
// From serialized Examples (strings) to predictions (float).
StatusOr<pb::SignatureDef> RegressionSignature(const Output& examples, const Output& predictions);

// "float[?,2]" with the tensor's name in the graph, or what it consists of: for messages and listings.
std::string TensorInfoText(const pb::TensorInfo& info);

// NOT_FOUND that lists the signatures that there are, without TensorFlow's internal ones.
Status SignatureNotFound(const std::string& name, const Signatures& there);

// Checks a tensor against the type and shape that a signature declares.
Status CheckTensorFits(const pb::TensorInfo& info, const class Tensor& tensor);

}  // namespace millrace
