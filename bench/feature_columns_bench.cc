// Millrace's side of bench/feature_columns: reads serialized examples, parses them and makes the input of a network of
// 13 numbers and 26 embeddings. Prints a JSON line.
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/measure.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

namespace fc = feature_column;

Status Measure(const std::string& file, int64_t batch, const std::string& column, double seconds) {
  std::vector<FeatureColumn> columns;
  for (int i = 1; i <= 13; ++i) columns.push_back(fc::Numeric(absl::StrCat("I", i)));
  for (int i = 1; i <= 26; ++i) {
    const FeatureColumn category = fc::CategoricalWithHashBucket(absl::StrCat("C", i), 1000);
    columns.push_back(column == "indicator" ? fc::Indicator(category)
                                            : fc::Embedding(category, 8, {.initializer = init::Constant(0.5)}));
  }
  const Scope scope = Scope::NewRoot();
  const Output serialized = ops::Placeholder(scope, DType::kString, {.shape = {-1}});
  MR_ASSIGN_OR_RETURN(const ParseSpec spec, MakeParseExampleSpec(columns));
  const Output input = InputLayer(scope, ParseExamples(scope, serialized, spec), columns);
  const Operation init = column == "indicator" ? Operation() : GlobalVariablesInitializer(scope);
  // One thread: the caller's.
  MR_ASSIGN_OR_RETURN(ClientSession session,
                      ClientSession::Create(scope, {.intra_op_threads = 1, .inter_op_threads = 1}));
  if (!init.empty()) MR_RETURN_IF_ERROR(session.Run(init));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> records,
                      Dataset::FromTFRecords({file}).Repeat().Batch(batch).MakeIterator());
  Status status;
  double sum = 0;
  std::vector<Tensor> element;
  MR_ASSIGN_OR_RETURN(const Step step, session.MakeStep({serialized}, {input}));
  const double rate = bench::Rate(seconds,
                                  [&] {
                                    status.Update(records->Next(&element).status());
                                    const StatusOr<Tensors> made = step({element[0]});
                                    status.Update(made.status());
                                    if (made.ok()) sum += (*made)[0].data<float>()[0];
                                  },
                                  {.warm = 20, .chunk = 5});
  MR_RETURN_IF_ERROR(status);
  std::cout << absl::StrFormat("{\"examples_per_second\": %f, \"sum\": %f}\n", rate * static_cast<double>(batch), sum);
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: feature_columns_bench FILE BATCH embedding|indicator SECONDS\n";
    return 2;
  }
  const millrace::Status status = millrace::Measure(argv[1], std::atoll(argv[2]), argv[3], std::atof(argv[4]));
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
