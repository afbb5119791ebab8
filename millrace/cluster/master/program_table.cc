#include "millrace/cluster/master/program_table.h"

#include <utility>

#include "millrace/base/exception_status.h"
#include "millrace/base/fan_in.h"
#include "millrace/cluster/master/program_wait.h"

namespace millrace {

std::shared_ptr<const MasterProgram> ProgramTable::Look(const std::string& key) const {
  const auto it = programs_.find(key);
  return it == programs_.end() ? nullptr : it->second;
}

StatusOr<std::shared_ptr<MasterProgram>> ProgramTable::Compile(const CallableSpec& spec, const GraphFor& graph_for,
                                                               Remote* remote) const {
  FeedTypes feeds;
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, graph_for(spec, &feeds));
  MR_ASSIGN_OR_RETURN(std::shared_ptr<MasterProgram> program, builder_->Build(std::move(graph), spec, remote));
  program->feeds = std::move(feeds);
  return program;
}

void ProgramTable::Find(const CallableSpec& spec, const CallControl& control, const GraphFor& graph_for, Done done,
                        absl::Duration limit) {
  std::string key = SignatureKey(spec);
  std::shared_ptr<const MasterProgram> found;
  {
    MutexLock lock(&mu_);
    found = Look(key);
  }
  if (found != nullptr) return done(std::move(found));
  auto wait = std::make_shared<ProgramWait>(std::move(done));
  wait->Start(control, &closing_, options_.timers, limit);
  if (wait->ended()) return;
  {
    MutexLock lock(&mu_);
    found = Look(key);
    if (found == nullptr) {
      std::vector<Done>& waiters = compiling_[key];
      waiters.push_back([wait](Result result) { wait->End(std::move(result)); });
      if (waiters.size() > 1) return;  // another caller compiles it
    }
  }
  if (found != nullptr) return wait->End(std::move(found));
  if (control.from != nullptr) control.from->RunsLong();
  const auto finish = [self = shared_from_this(), key](Result result) {
    std::vector<Done> waiters;
    {
      MutexLock lock(&self->mu_);
      waiters = std::move(self->compiling_.extract(key).mapped());
      if (result.ok()) self->programs_[key] = *result;
    }
    for (Done& waiter : waiters) waiter(result);
  };
  Remote remote;
  // An exception must not leave the others waiting.
  StatusOr<std::shared_ptr<MasterProgram>> program = CatchExceptions([&] { return Compile(spec, graph_for, &remote); });
  if (!program.ok()) return finish(program.status());
  Register(*std::move(program), std::move(remote), finish);
}

void ProgramTable::Make(std::unique_ptr<Graph> graph, const CallableSpec& spec, Done done) {
  Remote remote;
  StatusOr<std::shared_ptr<MasterProgram>> program = builder_->Build(std::move(graph), spec, &remote);
  if (!program.ok()) return done(program.status());
  Register(*std::move(program), std::move(remote), std::move(done));
}

void ProgramTable::Register(std::shared_ptr<MasterProgram> program, Remote remote, Done done) const {
  if (remote.empty()) return done(std::move(program));
  const auto all = std::make_shared<FanIn>(remote.size(), [program, done = std::move(done)](Status status) mutable {
    status.ok() ? done(std::move(program)) : done(std::move(status));
  });
  for (auto& [index, graph] : remote) {
    ProgramPart& part = program->parts[index];
    pb::RegisterGraphRequest request;
    request.set_session_handle(options_.session);
    request.set_create_worker_session_called(true);
    *request.mutable_graph_def() = std::move(graph);
    *request.mutable_graph_options() = options_.config.graph_options();
    *request.mutable_config_proto() = options_.config;
    request.mutable_debug_options();
    request.set_collective_graph_key(program->collective_graph_key);
    part.peer->worker->RegisterGraph(
        {}, std::move(request),
        [self = shared_from_this(), all, program, &part](StatusOr<pb::RegisterGraphResponse> response) {
          if (response.ok()) part.graph_handle = response->graph_handle();
          all->Arrive(response.status());
        });
  }
}

void ProgramTable::Close(const Status& why) {
  closing_.StartCancel(why);
  absl::flat_hash_map<std::string, std::shared_ptr<const MasterProgram>> programs;  // destroyed without the lock
  MutexLock lock(&mu_);
  programs.swap(programs_);
}

}  // namespace millrace
