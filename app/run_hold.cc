#include "app/run_hold.h"

#include <utility>

namespace sluice::app {

class RunHold::Reader final : public LineReader {
 public:
  Reader(RunHold& hold, std::function<void()> wake) : hold_(hold), wake_(std::move(wake)) {}
  ~Reader() override { hold_.Leave(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  std::string Take(bool* ended) override {
    const std::lock_guard lock(hold_.mutex_);
    *ended = hold_.ended_;
    return std::exchange(waiting, {});
  }
  // With the hold's mutex held.
  void Add(const std::string& line) {
    const bool was_empty = waiting.empty();
    waiting += line;
    if (was_empty) wake_();
  }
  void Wake() const { wake_(); }

  std::string waiting;

 private:
  RunHold& hold_;
  const std::function<void()> wake_;
};

RunHold::RunHold(std::function<void(Change)> changed) : changed_(std::move(changed)) {}

std::unique_ptr<LineReader> RunHold::Open(std::function<void()> wake) {
  std::unique_ptr<Reader> reader;
  {
    const std::lock_guard lock(mutex_);
    if (reader_ != nullptr) return nullptr;
    reader = std::make_unique<Reader>(*this, std::move(wake));
    reader->waiting = last_;
    reader_ = reader.get();
    was_held_ = true;
    if (ended_) return reader;
  }
  changed_(Change::kHeld);
  came_.notify_all();
  return reader;
}

void RunHold::Leave() {
  {
    const std::lock_guard lock(mutex_);
    reader_ = nullptr;
    if (ended_) return;
  }
  changed_(Change::kLost);
}

bool RunHold::AwaitHeld(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, longest, [this] { return was_held_ || hopeless_; });
  return was_held_;
}

void RunHold::GiveUp() {
  {
    const std::lock_guard lock(mutex_);
    hopeless_ = true;
  }
  came_.notify_all();
}

void RunHold::Tell(std::string line) {
  const std::lock_guard lock(mutex_);
  last_ = std::move(line);
  if (reader_ != nullptr) reader_->Add(last_);
}

void RunHold::End() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  if (reader_ != nullptr) reader_->Wake();
}

}  // namespace sluice::app
