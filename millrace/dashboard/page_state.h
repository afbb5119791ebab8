// What the page shows, as one JSON document.
//
// The document is the page's only input: the live page gets it once and then merge patches, a saved page contains it.
// It has no null members, and no text in it is markup. docs/dashboard.md describes its members.
#pragma once

#include <set>
#include <string>

#include "millrace/dashboard/history.h"
#include "millrace/dashboard/observation.h"
#include "millrace/dashboard/stragglers.h"
#include "nlohmann/json.hpp"

namespace millrace::dashboard {

// The tasks, links, waits and variables of one look. A pure function.
nlohmann::json DescribeLook(const Observation& look);

// Adds what only several looks show: the course of the training, events, stragglers. Not thread-safe.
class PageState {
 public:
  void Add(const Observation& look);
  const nlohmann::json& document() const { return document_; }
  // The number of the last event that it has.
  int64_t last_event() const { return last_event_; }

 private:
  void AddHistory(const Observation& look);
  void AddEvents(const Observation& look);
  void AddStragglers();

  nlohmann::json document_ = nlohmann::json::object();
  nlohmann::json events_ = nlohmann::json::object();
  std::set<int64_t> event_numbers_;
  int64_t last_event_ = 0;
  History history_;
  WaitedFor waited_for_;
};

}  // namespace millrace::dashboard
