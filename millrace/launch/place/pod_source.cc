// Kubernetes: a pod of an Indexed Job, of a JobSet or of a StatefulSet. The names of the others follow from its own:
//
//   train-2.train...          one set of pods for all tasks; the index in the set is the rank
//   train-worker-1.train...   a set for each job: the name before the index ends with the job's
//   train-worker-0-1.train... the same of a JobSet, whose names also have the index of the Job (0)
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "millrace/launch/place/standing.h"

namespace millrace::launch {
namespace {

bool InPod(const Surroundings& here) {
  return here.environment.contains("JOB_COMPLETION_INDEX") || here.environment.contains("KUBERNETES_SERVICE_HOST");
}

// Takes "-12" from the end of `name`; false if there is none.
bool TakeIndex(absl::string_view* name, absl::string_view* index) {
  const size_t dash = name->rfind('-');
  if (dash == absl::string_view::npos || dash + 1 == name->size()) return false;
  *index = name->substr(dash);
  int number;
  if (!absl::SimpleAtoi(index->substr(1), &number) || !absl::ascii_isdigit((*index)[1])) return false;
  name->remove_suffix(index->size());
  return true;
}

// Whether `name` ends with "-" and one of the jobs, or is one: takes it.
bool TakeJob(absl::string_view* name, absl::Span<const std::string> jobs, std::string* job) {
  for (const std::string& candidate : jobs) {
    // Names of pods have no capitals and no underscores.
    std::string in_name = absl::AsciiStrToLower(candidate);
    for (char& c : in_name) c = c == '_' ? '-' : c;
    if (*name != in_name && !absl::EndsWith(*name, absl::StrCat("-", in_name))) continue;
    name->remove_suffix(in_name.size());
    *job = candidate;
    return true;
  }
  return false;
}

StatusOr<Standing> ReadPod(const Surroundings& here, absl::Span<const std::string> jobs) {
  Variables variables(here.environment);
  Standing standing;
  Standing::Pods pods;
  absl::string_view name = here.host_name;
  const size_t dot = name.find('.');
  if (dot != absl::string_view::npos) {
    pods.domain = std::string(name.substr(dot));
    name = name.substr(0, dot);
  }
  absl::string_view index;
  const absl::string_view pod = name;
  if (!TakeIndex(&name, &index)) {
    return InvalidArgument("the pod's host name '", pod,
                           "' ends with no index: run the tasks as an Indexed Job, a JobSet or a StatefulSet");
  }
  (void)absl::SimpleAtoi(index.substr(1), &standing.rank);
  if (variables.Has("JOB_COMPLETION_INDEX")) {
    MR_ASSIGN_OR_RETURN(const int completion, variables.Number("JOB_COMPLETION_INDEX"));
    if (completion != standing.rank)
      return InvalidArgument("JOB_COMPLETION_INDEX is ", completion, ", but the pod's host name '", pod, "' ends with ",
                             standing.rank);
  }
  absl::string_view of_jobset = name, job_index;
  if (TakeJob(&name, jobs, &pods.job)) {
    pods.prefix = std::string(name);
  } else if (TakeIndex(&of_jobset, &job_index) && TakeJob(&of_jobset, jobs, &pods.job)) {
    pods.prefix = std::string(of_jobset);
    pods.job_index = std::string(job_index);
  } else {
    pods.prefix = absl::StrCat(name, "-");
  }
  standing.scheduler = absl::StrCat("the pod ", pod);
  standing.address = here.host_name;
  standing.size = 0;  // only the flags say
  standing.pods = std::move(pods);
  standing.used = variables.used();
  standing.used.push_back(absl::StrCat("host name ", here.host_name));
  return standing;
}

}  // namespace

const PlaceSource kPodSource = {"Kubernetes", InPod, ReadPod};

}  // namespace millrace::launch
